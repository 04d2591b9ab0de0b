"""``python -m tests.decode.fields_page``: writes the tables of ``docs/fields.md`` that the declarations give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from vedette.decode.aliases import ECS
from vedette.decode.codecs import CODECS
from vedette.decode.fields import LAYERS
from vedette.decode.formats.base import Field, Gives, Provenance
from vedette.decode.formats.table import FORMATS, SHAPES
from vedette.decode.programs import PROGRAMS
from vedette.model.event import Source

PAGE = Path(__file__).parents[2] / "docs" / "fields.md"
BEGIN, END = "<!-- begin: python -m tests.decode.fields_page -->\n", "<!-- end -->\n"
MANY = 30
"""Fields of a row from which on only those are listed that rules know under other names, too."""

_ALSO_ECS = {name for names in ECS.values() for name in names}


def page(text: str) -> str:
    """``text`` of the page with its generated part made anew."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + "\n".join(tables()) + "\n" + END + rest.partition(END)[2]


def tables() -> Iterator[str]:
    yield "\n### Layers\n"
    yield from _table("layer", ((name, row, None) for name, row in LAYERS.items()))
    yield "\n### Formats of text\n"
    yield from _table("format", ((name, row.gives, row.sources) for name, row in FORMATS.items()))
    yield "\n### Makes of JSON objects\n"
    yield from _table("make", ((name, row.gives, row.sources) for name, row in SHAPES.items()))
    yield "\n### Programs\n"
    yield "| programs | fields | pairs | log source |\n|---|---|---|---|"
    by_row: dict[int, list[str]] = {}
    for name, program in PROGRAMS.items():
        by_row.setdefault(id(program), []).append(name)
    for names in by_row.values():
        program = PROGRAMS[names[0]]
        gives = program.gives
        pairs = "yes" if gives.any else ""
        yield f"| {_code(names)} | {_fields(gives)} | {pairs} | {_source(program.source)} |"


def _table(kind: str, rows: Iterable[tuple[str, Gives, Source | None]]) -> Iterator[str]:
    source = "" if kind == "layer" else " log source |"
    yield f"| {kind} | recognized by | fields | any other name |{source}"
    yield "|---|---|---|---|" + ("---|" if source else "")
    for name, gives, where in rows:
        own = f"`{name}`" + (" (codec)" if name in CODECS and kind != "layer" else "")
        by = gives.recognized.replace("|", "\\|")
        other = gives.any.value if gives.any else ""
        last = "" if where is None else f" {_source(where)} |"
        yield f"| {own} | {by} | {_fields(gives)} | {other} |{last}"


def _code(names: Iterable[str]) -> str:
    text = " ".join(names)
    return f"`{text}`" if text else ""


def _fields(gives: Gives) -> str:
    fields = {field.name: field for field in reversed(gives.fields)}
    shown = [one for one in reversed(fields.values()) if len(fields) < MANY or one.name in _ALSO_ECS]
    kinds = {
        "": _code(_field(one) for one in shown if one.how is not Provenance.SYNTHETIC and not one.guard),
        "perhaps as hex: ": _code(_field(one) for one in shown if one.guard),
        "synthetic: ": _code(_field(one) for one in shown if one.how is Provenance.SYNTHETIC),
    }
    text = "; ".join(kind + names for kind, names in kinds.items() if names)
    left = len(fields) - len(shown)
    return f"{text} and {left} more" if left else text


def _field(field: Field) -> str:
    of = [name for name in field.of if name != field.name]
    return f"{field.name}({','.join(of) if len(of) < 4 else of[0] + ',…'})" if of else field.name


def _source(source: Source) -> str:
    parts = (" ".join(sorted(part)) if len(part) < 6 else f"{len(part)} kinds" for part in source)
    return " / ".join(part or "–" for part in parts) if any(source) else "the input's own"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
