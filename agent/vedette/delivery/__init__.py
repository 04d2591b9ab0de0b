"""Alerts out: the envelope, Parquet, the outbox, the uplink and the landing's folders.

An alert leaves the outbox only on the landing's receipt.
Imports: bundle, config, model, mqtt, store, system.
"""
