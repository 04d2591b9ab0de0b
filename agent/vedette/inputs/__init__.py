"""Logs in: pure framing, header parsing and field decoding, and the doors that own sockets, files and subscriptions."""
