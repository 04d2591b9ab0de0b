"""The HTTP API, ``/api/v1``: one router a noun.

Each module of ``ROUTERS`` has ``router``, an ``APIRouter`` without a prefix. Its routes take the one who asks from
``web.need``, answer pydantic models, and call the functions of ``data``, ``fleet`` and ``store`` that pages call, too.
"""

ROUTERS: tuple[str, ...] = (
    "me",
    "login",
    "users",
    "tokens",
    "searches",
    "audit",
    "settings",
    "events",
    "now",
    "alerts",
    "campaigns",
    "entities",
    "rules",
    "agents",
    "reports",
    "fleet",
    "rollouts",
    "hunts",
    "evidence",
    "authoring",
    "backtests",
)
