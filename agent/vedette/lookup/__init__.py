"""Lookups: dimension tables as immutable, versioned files that every process maps.

A probe is exact, never a false answer; native and plain Python read the same file and say the same of it.
Imports: bundle, engine, model, plan, system.
"""
