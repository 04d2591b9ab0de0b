"""Rule text to a plan: front-ends, the intermediate form, literals, the plan."""
