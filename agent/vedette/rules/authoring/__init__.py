"""The author's tools: test events, doubts, why a rule fires."""
