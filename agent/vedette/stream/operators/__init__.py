"""One file an operator over time; ``table.py`` lists them by the node of ``plan/query.py`` that they run."""
