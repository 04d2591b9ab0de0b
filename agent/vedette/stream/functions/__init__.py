"""The scalar functions of SQL: one row each in ``table.py``, with its type rule and what it computes."""
