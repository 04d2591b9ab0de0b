"""Statements as they are written: tokens, and trees without a word lost."""
