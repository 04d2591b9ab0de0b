"""Rule files to a plan: Sigma documents, correlations, filters, pipelines; `authoring/` tests, lints and explains them.

A bad document is refused by file and line, the others load. The front ends need the extra `vedette[rules]`.
Imports: decode, engine, lookup, model, plan, state, stream, system, udf.
"""
