"""The configuration file: every setting, its default and its checks.

All mistakes are reported at once, each with its key.
Imports: bundle, decode, inputs, model, mqtt, sinks, system.
"""
