"""Events whose values are recognized by identity, so that it is seen where a decoder takes a field's value from.

``Values.marked`` makes them of an event: each value knows its number, and notes when it is looked into. What a decoder
computes by ``decode/computed.py`` is a ``Computed``: declared parts of such values, perhaps absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from vedette.decode.computed import Cut, Part, Traced
from vedette.decode.decoder import ABSENT, Record


class Values:
    """The values of one event, numbered as the kernel numbers them (``kernel/src/structure.rs``): the members of an
    object in the order of their names, an array without an object in it as one."""

    def __init__(self) -> None:
        self.count = 0
        """How many they are."""
        self.inspected: set[int] = set()
        """Values that were looked into."""

    def marked(self, value: Any) -> Any:
        """``value`` with its parts made recognizable."""
        if isinstance(value, dict):
            return {key: self.marked(value[key]) for key in sorted(value)}
        if isinstance(value, list) and _holds_object(value):
            return [self.marked(item) for item in value]
        self.count += 1
        if value is None or value is True or value is False:
            return value
        marked = _MARKED[type(value)](value)
        marked.leaf, marked.inspected = self.count - 1, self.inspected
        return marked


def _holds_object(values: list[Any]) -> bool:
    return any(isinstance(item, dict) or (isinstance(item, list) and _holds_object(item)) for item in values)


def parts_of(value: Any) -> tuple[list[int], list[Any], bool]:
    """Return, of a field's value, numbers of the event's values, truth values, and whether anything else is in it."""
    own: list[int] = []
    fixed: list[Any] = []
    new = False
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Marked):
            own.append(item.leaf)
        elif item is True or item is False:
            fixed.append(item)
        elif isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, Computed):
            raise Unseen
        elif not (item is None or item is ABSENT or isinstance(item, dict)):
            new = True
    return own, fixed, new


class Marked(Traced):
    """A value that knows its number and notes when it is looked into."""

    leaf: int
    inspected: set[int]

    def give(self, fields: dict[str, Any], parts: Mapping[str, Part]) -> None:
        _give(fields, parts, {(self.leaf, ()): None}, {}, False)


_TELLING = frozenset("__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __str__ __repr__ __format__".split())  # noqa: SIM905
"""What every object has and tells something of a value."""


def _marked(base: type[Any]) -> type[Any]:
    """A subclass of ``base`` whose methods note that the value is looked into."""

    def noting(name: str) -> Callable[..., Any]:
        method = getattr(base, name)

        def call(self: Any, *args: Any, **named: Any) -> Any:
            self.inspected.add(self.leaf)
            return method(self, *args, **named)

        return call

    own = set(dir(base)) - set(dir(object)) | _TELLING
    body: dict[str, Any] = {name: noting(name) for name in own if callable(getattr(base, name))}
    if base is str:  # "x" + value
        body["__radd__"] = lambda self, other: other + str(self)
    if base in (str, list):  # whether there is anything in it is part of the structure
        body["__bool__"] = lambda self: base.__len__(self) > 0
    return type(f"_Marked_{base.__name__}", (Marked, base), body)


class Unseen(Exception):
    """A computed value was looked into."""


class Computed(Traced):
    """A field that a decoder has computed, as it may be in any event; or it is absent."""

    name: str
    parts: dict[tuple[int, tuple[Cut, ...]], None]
    """Values of the event with the cuts that make it."""
    guards: dict[tuple[int, str], None]
    """Values of the event with characters of which one in them makes it anything."""
    anything: bool

    def give(self, fields: dict[str, Any], parts: Mapping[str, Part]) -> None:
        _give(fields, parts, self.parts, self.guards, self.anything)

    def or_(self, value: Any) -> None:
        """It may be ``value`` as well."""
        if isinstance(value, Computed):
            self.parts |= value.parts
            self.guards |= value.guards
            self.anything |= value.anything
        elif value is not ABSENT:
            own, fixed, new = parts_of(value)
            self.parts |= {(leaf, ()): None for leaf in own}
            self.anything |= new or bool(fixed)


def _unseen(*_: Any) -> Any:
    raise Unseen


_ComputedText: type[Any] = type(
    "_ComputedText",
    (Computed, str),
    dict.fromkeys(set(dir(str)) - set(dir(object)) | _TELLING | {"__radd__"}, _unseen),
)
"""All that is computed is text; none of it can be read."""


def _computed(name: str) -> Any:
    text: Any = str.__new__(_ComputedText)
    text.name, text.parts, text.guards, text.anything = name, {}, {}, False
    return text


def _give(
    fields: dict[str, Any], parts: Mapping[str, Part], of: Mapping[tuple[int, tuple[Cut, ...]], None],
    guards: Mapping[tuple[int, str], None], anything: bool,
) -> None:  # fmt: skip
    """``Traced.give`` of what is made of values of the event by cuts."""
    for name, part in parts.items():
        computed = _computed(name)
        computed.parts = {(leaf, (*before, *cuts)): None for leaf, before in of for cuts in part.cuts}
        computed.guards = {**guards, **({(leaf, part.unless): None for leaf, _ in of} if part.unless else {})}
        computed.anything = anything
        computed.or_(fields.get(name, ABSENT))
        fields[name] = computed


def with_others(record: Record, field: str, value: Any) -> Any:
    """``value`` and what ``record`` has for ``field`` where computed fields are absent."""
    fields = cast(dict[str, Any], record.fields())
    either = _computed(field)
    passed = {}
    while isinstance(value, Computed):
        either.or_(value)
        passed[value.name] = fields.pop(value.name)
        value = record.get(field)
    either.or_(value)
    fields.update(passed)
    return either


_MARKED: Mapping[type[Any], type[Any]] = {base: _marked(base) for base in (str, int, float, list)}
