"""Aggregates: the table of them, the parts that they are made of, and groups of rows in columns."""
