"""User functions in Python: PyFlink's shapes, the isolated subprocess that runs them, and how it is kept in bounds.

A function can do the agent no harm: what it raises, returns or breaks is limited to its row.
Imports: plan, stream, system.
"""
