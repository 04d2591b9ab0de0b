"""MQTT 5 or 3.1.1 over TLS: one client that stays connected.

The only import of paho; certificates and names are always checked.
Imports: model, system.
"""
