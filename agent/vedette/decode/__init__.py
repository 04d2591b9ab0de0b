"""Bytes of one event to its fields, each extracted when a rule asks for it.

Pure; `formats/` holds one file a format, `fields.py` the table of what each declares.
Imports: model.
"""
