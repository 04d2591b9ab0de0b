"""Transport out: alerts to webhooks, syslog, OTLP, Kafka, files and commands of the site, beside the uplink.

A sink takes an alert only when its receiver has answered for it, says why when not, and never raises for a receiver.
Imports: kafka, model, system.
"""
