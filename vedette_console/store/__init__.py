"""The console's own data: users, sessions, tokens, searches and its audit log, in one database.

``database`` is the one way to SQLite or PostgreSQL, ``schema`` the tables, a module each their meaning, ``store`` all
of them together. Blocking: routes that are coroutines call it by ``asyncio.to_thread``.
"""
