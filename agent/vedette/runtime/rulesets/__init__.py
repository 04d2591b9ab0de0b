"""Which rules and lookups are in force: how sets come, are validated, merged and switched while the agent runs."""
