"""Nodes into one form, with what rows and user functions need."""
