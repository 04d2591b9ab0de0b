"""The three stages: chunks into the raw log, frames evaluated in order, alerts and cursor committed together."""
