"""The Sigma front end: YAML, pipelines and lookups to the rules, correlations and refusals of a ``RuleSet``."""
