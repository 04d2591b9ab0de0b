"""Statements over time: typed expressions, windows, joins and patterns over rows, as Apache Flink has them.

Pure: rows and watermarks are arguments, state is packed and restored as bytes.
Imports: decode, model, plan.
"""
