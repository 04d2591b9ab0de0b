"""A template and what it shows, as a page: escaped, in the viewer's time zone and theme.

Everything shown may have been chosen by an attacker: a log line, a host's name, a rule's title, a label. Jinja escapes
every value, after ``plain`` has taken out what a terminal or a reader's eye would obey; a value that is missing is an
error, not an empty text. No template writes script, style or a handler: the policy of ``security.headers`` needs no
exception.

``part`` renders one block of a template for htmx, which asks for one live part of a page; ``together`` asks several
questions for a page at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from spark_jobs.common.plain import cut, plain
from spark_jobs.report.triage import STATES
from vedette_console.data.query import quoted
from vedette_console.data.reader import unless_gone
from vedette_console.pages import assets, filters
from vedette_console.pages.filters import Zone
from vedette_console.web import Problem, maybe

CHOICES_HELD = 10.0
"""Seconds."""

MAX_SHOWN = 1_200
"""Characters of a text; longer ones are shown by the filters ``lines`` and ``exact``."""

THEMES = ("auto", "light", "dark")


class Room(NamedTuple):
    """A page of the navigation: the letter after ``g``, and the act that it needs."""

    path: str
    name: str
    letter: str
    act: str = "read"


ROOMS = (
    (
        Room("/", "Now", "n"),
        Room("/alerts", "Alerts", "a"),
        Room("/campaigns", "Campaigns", "c"),
        Room("/entities", "Entities", "e"),
    ),
    (
        Room("/fleet", "Fleet", "f"),
        Room("/rollouts", "Roll-outs", "o"),
        Room("/rules", "Rules", "r"),
        Room("/hunts", "Hunts", "h"),
        Room("/reports", "Reports", "p"),
    ),
    (
        Room("/settings", "Settings", "s"),
        Room("/users", "Users", "u", "users"),
        Room("/audit", "Audit", "l", "audit.read"),
        Room("/help", "Help", "?"),
    ),
)
"""The navigation, in groups."""


def page(request: Request, template: str, status: int = 200, /, **shown: Any) -> Response:
    """The template as a page; only its block of the part that htmx asks for (``HX-Target``), where it has one."""
    compiled, zone = environment().get_template(template), Zone.of(request, chosen(request).get("time_zone", ""))
    who = maybe(request)
    context = {
        "who": who,
        "may": (lambda act, fleet="", site="": who is not None and who.may(act, fleet, site)),
        "csrf": csrf(request),
        "zone": zone,
        "theme": _choice(request, "theme", THEMES),
        "keys": _choice(request, "keys", ("on", "off")),
        "rooms": [[room for room in group if who and who.may(room.act)] for group in ROOMS],
        "banner": chosen(request).get("banner", ""),
        "tables": request.app.state.settings.tables,
        "triage_states": STATES,
        "quoted": quoted,
        "here": request.url.path,
        "url": request.app.state.settings.url,
        "static": assets.url,
        **shown,
    }
    context["ui"] = environment().get_template("parts.html.j2").make_module(context)
    block = "part_" + part(request).replace("-", "_")
    live = compiled.blocks.get(block)
    text = "".join(live(compiled.new_context(context))) if live else compiled.render(context)
    return HTMLResponse(text, status, headers={"Cache-Control": "no-store", "Vary": "HX-Request, HX-Target, Cookie"})


def error_page(request: Request, problem: Problem) -> Response:
    """The page of an error, with its status."""
    return page(request, "error.html.j2", problem.status, problem=problem.body, status=problem.status)


def part(request: Request) -> str:
    """The id of the part that htmx asks for; empty: the whole page is asked for."""
    return request.headers.get("hx-target", "") if request.headers.get("hx-request") == "true" else ""


def csrf(request: Request) -> str:
    """The session's token, which acts send back; empty when nobody is logged in."""
    return str(getattr(request.state, "csrf", "") or "")


def chosen(request: Request) -> Mapping[str, Any]:
    """The choices of admins for all; read again after some seconds."""
    state, now = request.app.state, time.monotonic()
    read_at, choices = getattr(state, "page_choices", (0.0, {}))
    if now - read_at > CHOICES_HELD or not read_at:
        choices = state.store.choices.all()
        state.page_choices = (now, choices)
    return dict(choices)


def link(*parts: str) -> Markup:
    """A path of the console of ``parts``, each escaped."""
    return Markup("/" + "/".join(quote(part, safe="") for part in parts))


def search(term: str) -> Markup:
    """The address of the alerts that ``term`` of the search language asks for."""
    return Markup("/alerts?q=" + quote(term, safe=""))


@cache
def environment() -> Environment:
    """Jinja with what templates use, the same for all pages."""
    jinja = Environment(
        autoescape=True,
        finalize=_final,
        loader=PackageLoader("vedette_console.pages"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters |= filters.FILTERS
    jinja.globals |= {"link": link, "search": search}
    return jinja


def _final(value: Any) -> Any:
    if value is None:
        return ""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return plain(cut(value, MAX_SHOWN))


def _choice(request: Request, name: str, choices: tuple[str, ...]) -> str:
    value = request.cookies.get(name, "")
    return value if value in choices else choices[0]


def pager(request: Request, following: object) -> dict[str, Markup | str]:
    """Addresses of a list's first page, "" on it, and of the next one, whose cursor is ``following``; "" for none."""
    return {
        "first": query_of(request, after=None) if request.query_params.get("after") else "",
        "following": query_of(request, after=following) if following else "",
    }


def query_of(request: Request, **changed: object) -> Markup:
    """The page's own address with some of its query changed; None takes one out."""
    values: Mapping[str, str] = {**request.query_params, **{k: str(v) for k, v in changed.items() if v is not None}}
    pairs = [(key, value) for key, value in values.items() if changed.get(key, value) is not None and value != ""]
    text = "&".join(f"{quote(key, safe='')}={quote(value, safe='')}" for key, value in pairs)
    return Markup(escape(request.url.path)) + Markup("?" + text if text else "")


async def together(request: Request, *asked: Awaitable[Any]) -> list[Any]:
    """The answers in order; in the place of one that cannot be given is its Problem. Raises what else one raises."""

    async def all_of() -> list[Any]:  # a task: of a cancelled future of gather the loop logs that nobody reads it
        return await asyncio.gather(*asked, return_exceptions=True)

    answers = await unless_gone(request.is_disconnected, all_of())
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, Problem):
            raise answer
    return answers


async def nothing() -> None:
    """Nothing, in the place of what is not asked."""
