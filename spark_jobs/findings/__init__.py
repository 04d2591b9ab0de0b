"""Parts of campaigns and baselines: sessions, anomalies, what is new.

Data frames in, data frames out.
Imports: common, tables.
"""
