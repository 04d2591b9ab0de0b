"""The agent as a member of its region: its certificate, what the fleet wants of it, what operators ask.

Loaded only with ``[fleet]`` or a token.
"""
