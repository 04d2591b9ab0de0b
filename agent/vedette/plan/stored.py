"""Statements from bytes: what ``query.dump`` wrote, and whether it means anything.

Plans arrive from elsewhere: whatever is wrong with one raises ValueError.
"""

from __future__ import annotations

from dataclasses import fields
from decimal import Decimal
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from vedette.plan.grid import MAX_PARTS
from vedette.plan.query import (
    KINDS,
    Assign,
    Grouped,
    Join,
    LookupJoin,
    Match,
    Module,
    Modules,
    Node,
    Over,
    Scan,
    Statement,
    Top,
    Windowed,
    indexes,
    nodes,
)

MAX_DEPTH = 400


def load(data: Any, depth: int = 0) -> Any:
    """Raises ValueError when ``data`` is not what ``dump`` gives."""
    if not isinstance(data, list):
        return data
    if depth > MAX_DEPTH or not data or not isinstance(data[0], str):
        raise ValueError(f"not a query: {data!r:.80}")
    name, *parts = data
    if name == "Decimal":
        try:
            return Decimal(str(parts[0]))
        except (ArithmeticError, IndexError) as error:
            raise ValueError(f"not a query: {data!r:.80} is no number") from error
    loaded = tuple(load(part, depth + 1) for part in parts)
    if not name:
        return loaded
    if name not in KINDS:
        raise ValueError(f"not a query: no operator is called {name!r:.40}")
    try:
        built = KINDS[name](*loaded)
    except TypeError as error:
        raise ValueError(f"not a query: {error}") from error
    for field, hint in _hints(KINDS[name]):
        if not _fits(getattr(built, field), hint):
            raise ValueError(f"not a query: {name} with {field} {getattr(built, field)!r:.80}")
    return built


@cache
def _hints(kind: type) -> tuple[tuple[str, Any], ...]:
    return tuple(get_type_hints(kind).items())


def _fits(value: Any, hint: Any) -> bool:
    """Whether ``value`` is of the type ``hint``, as the classes of ``query.py`` declare them."""
    if hint is Any:
        try:
            return hash(value) is not None
        except TypeError:
            return False
    if isinstance(hint, type) and get_origin(hint) is None:
        return type(value) is hint if hint in (int, bool, str) else isinstance(value, hint)
    of = get_args(hint)
    if get_origin(hint) is not tuple:
        return any(_fits(value, alternative) for alternative in of)
    if type(value) is not tuple:
        return False
    if of[-1] is Ellipsis:
        return all(_fits(element, of[0]) for element in value)
    return len(value) == len(of) and all(map(_fits, value, of))


def statements(data: Any) -> tuple[Statement, ...]:
    """Load ``dump``ed statements. Raises ValueError for anything else."""
    loaded = load(data)
    if not isinstance(loaded, tuple) or not all(isinstance(statement, Statement) for statement in loaded):
        raise ValueError("not statements")
    for statement in loaded:
        texts = [statement.id, statement.title, statement.level, statement.digest, statement.path, *statement.tags]
        if not all(isinstance(text, str) for text in texts) or not isinstance(statement.root, Node):
            raise ValueError(f"not a statement: {statement.id!r:.60}")
        for node in nodes(statement.root):
            _check_columns(node, statement.title)
            if isinstance(node, Assign | Windowed) and not 0 < node.grid.parts <= MAX_PARTS:
                raise ValueError(f"the statement {statement.title!r:.60}: no window is {node.grid}")
    return loaded


def _check_columns(node: Node, title: str) -> None:
    """Raises ValueError where ``node`` names a column that its rows do not have."""
    below = sum(len(child.columns) for child in node.inputs)
    width = len(node.columns) if isinstance(node, Scan) else max(len(child.columns) for child in node.inputs)
    places = [(node.time, len(node.columns))]
    match node:
        case Join(left=left, right=right, windows=windows):
            places += [(at, len(left.columns)) for at in (*node.left_keys, *(windows[0] if windows else ()))]
            places += [(at, len(right.columns)) for at in (*node.right_keys, *(windows[1] if windows else ()))]
            width = below
        case LookupJoin():
            width = below + len(node.wanted)  # its condition sees them, also where it only tests
        case Windowed() | Over() | Match() | Grouped() | Top():
            places += [(at, width) for at in (*node.keys, *(node.window if isinstance(node, Grouped | Top) else ()))]
            places += [(at, width) for at, _, _ in node.order] if isinstance(node, Top) else []
            for grouping in node.sets if isinstance(node, Windowed) else ():
                places += [(at, len(node.keys) - 1) for at in grouping]
        case Assign():
            places += [(at, width) for at in node.keys]
    if isinstance(node, Assign | Windowed | Over | Match):
        places.append((node.input.time, width))
    places += [(at, width) for attribute in fields(node) for at in indexes(getattr(node, attribute.name))]
    beyond = next((at for at, most in places if not 0 <= at <= most), None)
    if beyond is not None:
        raise ValueError(f"the statement {title!r:.60}: {type(node).__name__} has no column {beyond}")


def modules(data: Any) -> tuple[Modules, ...]:
    """Load ``[[name, package, source], …]`` for each set. Raises ValueError for anything else."""
    try:
        sets = tuple(Modules(tuple(Module(*row) for row in rows)) for rows in data)
    except TypeError as error:
        raise ValueError(f"not modules: {error}") from error
    for entry in (module for each in sets for module in each.modules):
        if not (type(entry.name) is str and type(entry.package) is bool and type(entry.source) is str):
            raise ValueError(f"not a module: {entry.name!r:.60}")
    return sets
