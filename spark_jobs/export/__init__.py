"""Alerts in the schemas of other systems: OCSF and ECS.

Pure: a row in, a document out.
Imports: common, tables.
"""
