"""Pages: ``render.page`` makes HTML of a template, ``shapes`` computes figures for drawings,
``filters`` write values.

Style and script are files of ``static``, without a build step. A form with ``data-act`` is an act: ``act.js`` sends it
to the API and shows what that answers; a part with ``data-live`` is asked for again upon news (``live.js``).
"""
