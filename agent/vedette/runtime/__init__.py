"""The running agent: its stages, how it starts, reloads and stops, and its account of itself.

The only place that puts the parts together. Read ``agent/`` and ``pipeline/`` first.
Imports: archive, bundle, config, decode, delivery, engine, fleet, inputs, lookup, model, mqtt, plan, rawlog,
response, rules, sinks, state, store, stream, system, udf.
"""
