"""A signed rule set: its manifest, whom to trust, and how it is installed, switched and rolled back.

Nothing in a bundle is believed before its signature is verified.
Imports: model, system.
"""
