"""Every page by name, and where it is in the tables of ``region``."""

from __future__ import annotations

import re
from urllib.parse import quote

from tests.console.kit import Console

PAGES = {
    "now": "/",
    "alerts": "/alerts",
    "a mistake in a search": "/alerts?q=sitee%3Ax",
    "campaigns": "/campaigns",
    "campaign": "/campaigns/" + "c0" * 8,
    "entities": "/entities",
    "fleet": "/fleet",
    "agent": "/fleet/plants/edge-vienna-1",
    "roll-outs": "/rollouts",
    "roll-out": "/rollouts/7f578d5028e9a74c",
    "rules": "/rules",
    "silent rules": "/rules?show=silent",
    "noise": "/rules?show=noise",
    "matrix": "/rules?show=attack",
    "editor": "/rules/new",
    "hunts": "/hunts",
    "hunt": "/hunts/" + "b" * 32,
    "backtest": "/backtests/" + "b" * 32,
    "reports": "/reports",
    "settings": "/settings",
    "users": "/users",
    "audit": "/audit",
    "help": "/help",
    "api": "/api",
    "nowhere": "/nowhere",
}
OF_TABLES = ("campaign", "agent", "roll-out", "hunt", "backtest", "alert", "entity", "rule", "filter")
"""Those that are about one thing, which is not there when nothing is."""
LINKS = {
    "alert": r'href="(/alerts/\d[^"]+)"',
    "entity": r'href="(/entities/user/[^"]+)"',
    "rule": r'href="(/rules/rule-1[^"]+)"',
}


def places(console: Console) -> dict[str, str]:
    """``PAGES``, and one alert, entity and rule as other pages lead to them."""
    client, paths = console.session("root"), dict(PAGES)
    for name, page in (("alert", "/alerts"), ("entity", "/entities"), ("rule", "/rules")):
        match = re.search(LINKS[name], client.get(page).text)
        assert match, f"{page} leads to no {name}"
        paths[name] = match[1].replace("&amp;", "&")
    paths["filter"] = "/rules/new?filter=" + quote(_loud(client.get("/rules?show=noise").text))
    return paths


def _loud(page: str) -> str:
    match = re.search(r"filter=([^\"&]+)", page)
    assert match, "no filter is proposed"
    return match[1]
