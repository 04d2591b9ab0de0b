"""Parts that the configuration asks for: inputs, sinks, decoder plugins, local response, the archive."""
