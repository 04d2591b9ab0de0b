"""Values of SQL: the types and their families, numbers and times as Java has them, and all of these as texts."""
