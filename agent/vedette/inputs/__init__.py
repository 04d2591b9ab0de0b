"""Transport in: syslog over UDP, TCP, TLS and RELP, HTTP, systemd's journal, tailed files, MQTT; bytes to chunks.

An input acknowledges only what the raw log holds; one sender's fault harms no other.
Imports: decode, model, mqtt, system.
"""
