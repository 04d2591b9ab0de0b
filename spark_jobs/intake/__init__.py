"""Landed rows in: sources, bad files, one micro-batch of alerts, heartbeats and dead letters.

A batch that runs again changes nothing.
Imports: common, tables.
"""
