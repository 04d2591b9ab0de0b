"""Parts of a backtest: what one segment of a raw log holds for rules, and what fires over time in a whole one.

Executors run it with ``vedette``; rows in, rows out.
Imports: tables.
"""
