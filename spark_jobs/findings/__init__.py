"""Parts of campaigns, baselines, risk and proposed filters.

Data frames or values in, and out.
Imports: common, tables.
"""
