"""Intelligence feeds to lookups: STIX bundles, TAXII collections, MISP exports and feed folders.

``settings.py`` reads the file of feeds, ``web.py`` and ``stix.py``, ``taxii.py``, ``misp.py`` read one feed each into
entries (``entry.py``, whose values ``values.py`` checks), ``store.py`` keeps them, ``fetch.py`` runs all and builds.
"""
