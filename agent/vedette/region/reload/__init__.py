"""Lookups that are rebuilt from a source by themselves: a file on the web, a file, a query of a database.

``settings.py`` reads their tables, ``sources.py`` and ``databases.py`` read one source each into a table's file,
``refresh.py`` builds, signs and publishes what changed, ``health.py`` says at the broker how old each is.
"""
