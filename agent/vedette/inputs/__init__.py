"""Transport in: syslog (UDP, TCP, TLS, RELP), HTTP, systemd's journal, audit log, files, MQTT; bytes to chunks.

An input acknowledges only what the raw log holds; one sender's fault harms no other.
Imports: decode, model, mqtt, system.
"""
