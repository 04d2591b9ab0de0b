"""Sealed segments in a store of their owner: S3-compatible, Azure, Google Cloud Storage, or a mounted folder.

A local copy leaves only when the store's is verified; readers read through to them.
Imports: config, model, rawlog, system.
"""
