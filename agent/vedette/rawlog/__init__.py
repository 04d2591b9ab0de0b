"""The log of everything received: append-only segments of compressed, checksummed frames.

What is synced survives a crash; a torn tail is cut, never guessed.
Imports: config, model, system.
"""
