"""The tables: their schema, how rows are written exactly once, and how questions are asked of them.

One interface over Delta by deltalake and Delta by Spark.
Imports: nothing of the jobs.
"""
