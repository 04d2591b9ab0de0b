"""The controller: each change of a fleet goes ring by ring, is watched, and comes back by itself."""
