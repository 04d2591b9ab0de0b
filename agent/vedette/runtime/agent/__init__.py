"""The agent as a whole: how it starts, reloads and stops, what it says of itself, and who may ask it."""
