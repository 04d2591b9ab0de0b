"""The local log of everything received: append-only segments of compressed, checksummed frames."""
