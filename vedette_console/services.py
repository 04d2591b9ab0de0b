"""What runs while the console runs, in the order in which it starts; it ends in the other.

Each is ``MODULE:FUNCTION``, an async context manager of the application that puts what routes use into ``app.state``:
``pool`` (``data``: ``await app.state.pool.ask(function, *args)``) and ``live`` (``fleet``).
"""

from __future__ import annotations

SERVICES = (
    "vedette_console.data.service:run",
    "vedette_console.fleet.service:run",
)
