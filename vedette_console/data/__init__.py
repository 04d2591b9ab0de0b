"""Questions to the region's tables, for pages and the API: bounded, scoped to what the asker may see, cancellable.

Begin with ``reader`` (the pool and the scope), then ``query`` (the search language), then a noun. A data function is
``(reader, who, …) -> model``, blocks, and is called by ``await pool_of(request).ask(function, who, …)``.
"""
