"""What rules mean: the IR of detections and correlations, and the plan that is compiled from it.

Pure: predicates, operators, programs, prefilter literals, pattern databases, limits. Knows no rule language.
Imports: decode, model.
"""
