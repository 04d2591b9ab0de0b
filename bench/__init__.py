"""The benchmark and the traffic it runs on: stream generators, rule generators, senders and the harness.

Nothing of the agent imports this package. ``README.md`` says how to run each part.
"""
