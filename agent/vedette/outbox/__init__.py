"""Alerts out, once and durable: the envelope, the queue, the uplinks."""
