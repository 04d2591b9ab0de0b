"""What holds of the HTML of every page: nothing in it runs or styles by itself, and it is made for everybody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser

FIELDS = {"input", "select", "textarea"}
OWN = ("/", "#", "https://attack.mitre.org/")
ADDRESSES = {"href", "src", "action", "formaction", "xlink:href", "data", "srcdoc", "ping", "poster"}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))


def tags(page: str) -> list[tuple[str, dict[str, str]]]:
    """Every tag with its attributes."""
    reader = _Reader()
    reader.feed(page)
    return reader.tags


def mistakes(page: str) -> Iterator[str]:
    """What is wrong with a page, in words."""
    every = tags(page)
    yield from _unsafe(every)
    ids = Counter(attrs["id"] for _, attrs in every if "id" in attrs)
    yield from (f"id {name} is there {count} times" for name, count in ids.items() if count > 1)
    labelled = {attrs["for"] for tag, attrs in every if tag == "label" and "for" in attrs}
    yield from (f"label for {name}, which is not there" for name in labelled - set(ids))
    for tag, attrs in every:
        if tag in FIELDS and attrs.get("type") not in ("hidden", "checkbox") and attrs.get("id") not in labelled:
            yield f"{tag} {attrs} has no label"
        if tag == "th" and attrs.get("scope") not in ("col", "row"):
            yield f"th {attrs} has no scope"
        own = (
            attrs.get("data-act") or "editor-form" in attrs.get("class", "") or attrs.get("method") in ("get", "dialog")
        )
        if tag == "form" and not own:
            yield f"form {attrs} would be sent by the browser"
    counts = Counter(tag for tag, _ in every)
    yield from (f"{tag}: {counts[tag]}" for tag in ("main", "h1") if counts[tag] != 1)


def _unsafe(every: list[tuple[str, dict[str, str]]]) -> Iterator[str]:
    for tag, attrs in every:
        if tag in ("style", "iframe", "object", "embed", "base", "img"):
            yield f"<{tag}>"
        if tag == "script" and "src" not in attrs and attrs.get("type") != "application/json":
            yield "a script within the page"
        for name, value in attrs.items():
            if name.startswith("on") or name == "style" or name.startswith(("hx-on", "data-hx-on")):
                yield f"<{tag} {name}>"
            if name in ADDRESSES and not value.startswith(OWN):
                yield f"<{tag} {name}={value[:80]!r}>"
            if name in ADDRESSES and value.startswith("//"):
                yield f"<{tag} {name}> leads to another host"
