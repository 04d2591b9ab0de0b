"""Queries as trees to the nodes of `plan/query.py`."""
