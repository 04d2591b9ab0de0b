"""``make demo``: the whole path on one machine, with real parts."""
