"""Apache Kafka: how its brokers are reached, of whatever reads from them or writes to them.

Passwords come from files; with TLS certificates and names are always checked. Loads librdkafka only when it is used.
Imports: model, system.
"""
