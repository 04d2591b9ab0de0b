"""Bytes of one event to its fields, each extracted when a rule asks for it.

Pure; `formats/` holds one file a format, `provenance.py` says how a value stands in them.
Imports: model.
"""
