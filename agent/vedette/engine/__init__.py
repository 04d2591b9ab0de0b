"""Does it match: the prefilter over chunks, and evaluation of its candidates."""
