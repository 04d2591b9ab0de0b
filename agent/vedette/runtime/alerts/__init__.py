"""From a match to an alert: made, enriched, given to local response, redacted."""
