"""Transport in: syslog (UDP, TCP, TLS, RELP), HTTP, systemd's journal, audit log, files, MQTT, Kafka; bytes to chunks.

An input acknowledges only what the raw log holds; one sender's fault harms no other.
Imports: decode, engine, kafka, model, mqtt, system.
"""
