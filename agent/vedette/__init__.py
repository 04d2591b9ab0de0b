"""Vedette, an edge security rule agent."""

__version__ = "0.1.0"
