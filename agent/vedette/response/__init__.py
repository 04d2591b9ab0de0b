"""Local response: which address an alert has blocked in this host's firewall, and for how long.

The host's owner decides; what is allowed always wins; every block ends by itself, also when the agent is gone.
Imports: config, model, sinks, system.
"""
