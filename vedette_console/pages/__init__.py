"""The pages: HTML from the functions that the API calls.

Each module of ``ROUTERS`` has ``router``, an ``APIRouter`` without a prefix, left out of the OpenAPI document; a module
is a page and those below it. ``render.page`` makes HTML of a template, ``shapes`` figures for drawings, ``zone`` times,
``assets`` serves style and script. ``errors:page``, ``(request, Problem) -> Response``, shows an error.

Style and script are files of ``static``, without a build step. A form with ``data-act`` is an act: ``act.js`` sends it
to the API and shows what that answers; a part with ``data-live`` is asked for again upon news (``live.js``).
"""

ROUTERS: tuple[str, ...] = (
    "assets",
    "login",
    "now",
    "alerts",
    "campaigns",
    "entities",
    "fleet",
    "rollouts",
    "rules",
    "hunts",
    "reports",
    "settings",
    "users",
    "audit",
    "help",
    "api",
)
