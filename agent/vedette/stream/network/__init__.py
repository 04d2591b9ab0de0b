"""The network of operators: rows in at its scans, watermarks by source, islands that run, rows of alerts that wait."""
