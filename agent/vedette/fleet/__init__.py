"""What a fleet wants of its agents: signed documents, who is meant, what is in force, and proof of it.

Nothing is believed before the metadata of The Update Framework vouches for it; a local setting that is locked wins.
Imports: archive, bundle, config, decode, inputs, lookup, model, rawlog, sinks, system.
"""
