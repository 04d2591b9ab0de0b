"""Questions to the region's tables, for pages and the API: bounded, scoped to what the asker may see, cancellable.

Begin with ``reader`` (the pool and the scope), then ``query`` (the search language), then a noun. A data function is
``(reader, …) -> model`` of what ``reader.who`` may see, blocks, and is called by ``await ask(request, function, who,
…)``.
"""
