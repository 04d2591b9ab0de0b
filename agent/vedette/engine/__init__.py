"""Which events match which rules: the prefilter over chunks, then evaluation of its candidates.

Pure: a function of frames and plan; the prefilter never misses, the cache never answers differently.
Imports: decode, model, plan.
"""
