"""The centre: build, sign and publish bundles, enrol agents, land their alerts.

Not on the edge: nothing there imports it.
Imports: bundle, config, delivery, engine, fleet, lookup, model, mqtt, plan, sinks, system.
"""
