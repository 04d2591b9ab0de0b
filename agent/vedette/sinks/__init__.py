"""Transport out: alerts and rows to webhooks, syslog, OTLP, Kafka, MQTT, files and commands, beside the uplink.

A sink takes one only when its receiver has answered for it, says why when not, and never raises for a receiver.
Imports: kafka, model, mqtt, system.
"""
