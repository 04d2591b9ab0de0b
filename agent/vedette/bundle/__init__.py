"""Rules arriving: a signed rule set is verified, staged, tried and switched to, or refused with a reason."""
