"""Flink SQL to the plan: sqlglot parses; names, types and what is refused are checked here, by line and column."""
