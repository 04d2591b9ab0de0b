"""Routes, a module a noun: the API, ``/api/v1``, and the pages, from the same functions.

Routes take the one who asks from ``web.need`` and call the functions of ``data``, ``fleet`` and ``store``; those of the
API answer models, a page (``show_…``) makes HTML of a template (``pages.render``) and is left out of the OpenAPI
document.
"""

API: tuple[str, ...] = (
    "views.settings:api_me",
    "views.login:api",
    "views.users:api",
    "views.settings:api_tokens",
    "views.settings:api_searches",
    "views.audit:api",
    "views.settings:api",
    "views.events:api",
    "views.now:api",
    "views.alerts:api",
    "views.campaigns:api",
    "views.entities:api",
    "views.rules:api",
    "views.fleet:api_agents",
    "views.reports:api",
    "views.fleet:api",
    "views.rollouts:api",
    "views.hunts:api",
    "views.hunts:api_evidence",
    "views.hunts:api_backtests",
)
PAGES: tuple[str, ...] = (
    "pages.assets:router",
    "views.login:pages",
    "views.now:pages",
    "views.alerts:pages",
    "views.campaigns:pages",
    "views.entities:pages",
    "views.fleet:pages",
    "views.rollouts:pages",
    "views.rules:pages",
    "views.hunts:pages",
    "views.reports:pages",
    "views.settings:pages",
    "views.users:pages",
    "views.audit:pages",
    "views.help:pages",
)
"""Routers, each ``MODULE:NAME``; of two that fit a path the first answers."""
