"""The engine of the live path over what is stored already: scan, hunts, exports."""
