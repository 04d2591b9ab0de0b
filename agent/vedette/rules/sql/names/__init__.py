"""Names and types: the catalogue of a file, scopes, and expressions checked against them."""
