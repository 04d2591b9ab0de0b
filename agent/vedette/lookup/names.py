"""How lookups are called where they lie: their files, and the parts of a bundle that are lookups."""

SUFFIX = ".vlookup"
"""Of the file of a lookup; what stands before it is what rules call it."""
FOLDER = "lookups/"
"""Begins the names of a bundle's parts that are lookups."""
