"""Parts that several jobs need: times and days, ATT&CK, entities, text, lookups, the Spark session.

Columns and values in, columns and values out.
Imports: nothing of the jobs.
"""
