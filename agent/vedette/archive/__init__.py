"""Sealed segments in a store of their owner: S3-compatible, Azure, Google Cloud Storage, or a mounted folder.

A local copy leaves only when the store's is verified; a segment never has two objects; readers read through to them.
Imports: config, rawlog, system.
"""
