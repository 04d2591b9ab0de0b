"""A day or a week as a page and as text.

The page fetches nothing; texts from logs are escaped.
Imports: common, findings, tables.
"""
