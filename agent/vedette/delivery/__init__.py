"""Alerts out: the envelope, Parquet, the outbox, the uplink and the landing's folders.

An alert leaves the outbox only on the landing's receipt; sinks read the same outbox, each from its own place.
Imports: bundle, config, model, mqtt, rawlog, sinks, store, system.
"""
