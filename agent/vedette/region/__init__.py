"""The centre's side: build, sign and publish bundles; land alerts. Not on the edge; nothing there imports it."""
