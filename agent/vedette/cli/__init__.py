"""The commands, one file a noun.

Each imports what it needs when it runs, so that the agent starts without the rest.
Imports: archive, bundle, config, decode, delivery, engine, fleet, lookup, model, mqtt, plan, rawlog, region,
response, rules, runtime, sinks, store, system, udf.
"""
