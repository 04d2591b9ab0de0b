"""Arrays (tuples), maps (dicts) and rows (tuples)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vedette.plan.query import Expression, Type
from vedette.stream.functions import cast
from vedette.stream.functions.table import Function, Infer, WrongTypes, constant, count, gives, of, shared, takes
from vedette.stream.values.types import BOOLEAN, INT, STRING, TEXT, WHOLE, Failed, common

_ARRAY, _MAP, _ROW = ("ARRAY",), ("MAP",), ("ROW",)


def _array(of: Type) -> Type:
    return Type("ARRAY", args=(of,))


def _key(value: Any) -> Any:
    """Return what makes equal values equal for a set: arrays and maps in arrays as texts."""
    return value if not isinstance(value, dict) else repr(sorted(value.items(), key=repr))


# --- made


def _construct_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    count(args, 1, 10_000)
    return _array(shared(args))


def _converters(args: Sequence[Expression], to: Type) -> list[Callable[[Any], Any] | None]:
    return [cast.implicit(argument.type, to) for argument in args]


def _as(value: Any, change: Callable[[Any], Any] | None) -> Any:
    return value if value is None or change is None else change(value)


def _construct(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[..., Any]:
    changes = _converters(args, type.args[0])
    if not any(changes):
        return lambda *values: values
    return lambda *values: tuple(map(_as, values, changes))


def _map_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    if not args or len(args) % 2:
        raise WrongTypes("takes pairs of key and value")
    return Type("MAP", args=(shared(args[::2]), shared(args[1::2])))


def _map(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[..., Any]:
    keys, values = _converters(args[::2], type.args[0]), _converters(args[1::2], type.args[1])
    return lambda *listed: dict(zip(map(_as, listed[::2], keys), map(_as, listed[1::2], values), strict=True))


def _row_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    return Type("ROW", args=tuple((f"EXPR${place}", argument.type) for place, argument in enumerate(args)))


# --- elements


def _item_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    count(args, 2)
    container, index = args[0].type, args[1].type
    if container.name == "ARRAY":
        takes(_ARRAY, WHOLE[:-1])(args)  # as in Flink, no BIGINT
        place = constant(args[1])
        if place is not None and place < 1:
            raise WrongTypes(f"an array's elements are counted from 1, not {place}")
        element: Type = container.args[0]
        return element
    if container.name == "MAP":
        if common((container.args[0], index)) is None:
            raise WrongTypes(f"the keys are {container.args[0]}, not {index}")
        value: Type = container.args[1]
        return value
    raise WrongTypes("[ ] stands behind an array or a map")


def _item(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[[Any, Any], Any]:
    if args[0].type.name == "MAP":
        change = cast.implicit(args[1].type, args[0].type.args[0])
        return lambda value, key: value.get(_as(key, change))
    return lambda value, place: value[place - 1] if 1 <= place <= len(value) else None


def _field_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    takes(_ROW)(args)
    for name, of_field in args[0].type.args:
        if name == options[0]:
            field_type: Type = of_field
            return field_type
    raise WrongTypes(f"there is no field {options[0]}; there is {', '.join(name for name, _ in args[0].type.args)}")


def _field(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[[Any], Any]:
    place = [name for name, _ in args[0].type.args].index(options[0])
    return lambda value: value[place]


def _element_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    takes(_ARRAY)(args)
    element: Type = args[0].type.args[0]
    return element


def _element(value: Sequence[Any]) -> Any:
    if len(value) > 1:
        raise Failed("ELEMENT of an array of several")
    return value[0] if value else None


# --- arrays


def _of_array(result: Callable[[Type], Type], rest: int = 0, least: int | None = None) -> Infer:
    """An array, then ``rest`` values of its elements' type."""

    def infer(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
        count(args, (1 + rest) if least is None else least, 1 + rest)
        takes(_ARRAY)(args[:1])
        element: Type = args[0].type.args[0]
        for place, argument in enumerate(args[1:], 2):
            if common((element, argument.type)) != element and not (
                element.name in TEXT and argument.type.name in TEXT
            ):
                raise WrongTypes(f"argument {place} must be {element}, as the elements are, not {argument.type}")
        return result(element)

    return infer


def _with_element(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Binds a function of an array and an element, which is brought to the elements' type."""

    def bind(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[..., Any]:
        change = cast.implicit(args[1].type, args[0].type.args[0])
        return lambda value, element: None if value is None else compute(value, _as(element, change))

    return bind


def _arrays_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    takes(_ARRAY, _ARRAY, least=1, more=True)(args)
    merged = common(of(args))
    if merged is None:
        raise WrongTypes("the arrays have elements of different types")
    return merged


def _arrays(compute: Callable[..., Any]) -> Callable[..., Any]:
    def bind(args: Sequence[Expression], options: tuple[Any, ...], type: Type) -> Callable[..., Any]:
        changes = _converters(args, type)
        return lambda *values: compute(*map(_as, values, changes))

    return bind


def _by_key(values: Sequence[Any]) -> dict[Any, Any]:
    """Return of equal elements the last one, in the place of the first; by what makes them equal."""
    return {(element.__class__, _key(element)): element for element in values}


def _distinct(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(_by_key(values).values())


def _intersect(first: Sequence[Any], *others: Sequence[Any]) -> tuple[Any, ...]:
    there = [_by_key(other) for other in others]
    return tuple(element for key, element in _by_key(first).items() if all(key in other for other in there))


def _except(first: Sequence[Any], second: Sequence[Any]) -> tuple[Any, ...]:
    there = _by_key(second)
    return tuple(element for key, element in _by_key(first).items() if key not in there)


def _sort_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    takes(_ARRAY, ("BOOLEAN",), ("BOOLEAN",), least=1)(args)
    if args[0].type.args[0].name in ("ARRAY", "MAP", "ROW"):
        raise WrongTypes(f"elements of {args[0].type.args[0]} have no order")
    return args[0].type


def _sort(values: Sequence[Any], ascending: bool = True, nulls_first: bool | None = None) -> tuple[Any, ...]:
    nulls = [element for element in values if element is None]
    ordered = sorted((element for element in values if element is not None), reverse=not ascending)
    return (*nulls, *ordered) if (ascending if nulls_first is None else nulls_first) else (*ordered, *nulls)


def _slice(values: Sequence[Any], start: int, end: int | None = None) -> tuple[Any, ...]:
    """From one place to another, both inclusive, counted from 1, from the end if negative."""
    size = len(values)
    first = max(start + size if start < 0 else start - 1 if start > 0 else 0, 0)
    last = size if end is None else (end + size + 1 if end < 0 else end if end > 0 else 1)
    return tuple(values[first : max(last, 0)])


def _join(values: Sequence[Any], separator: str, missing: str | None = None) -> str:
    texts = (missing if element is None else element for element in values)
    return separator.join(text for text in texts if text is not None)


def _join_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    takes(_ARRAY, TEXT, TEXT, least=2)(args)
    if args[0].type.args[0].name not in TEXT:
        raise WrongTypes("takes an array of texts; use CAST(… AS ARRAY<STRING>)")
    return STRING


def _position(values: Sequence[Any], wanted: Any) -> int | None:
    return None if wanted is None else next((place for place, each in enumerate(values, 1) if each == wanted), 0)


def _extreme(choose: Callable[..., Any]) -> Callable[[Sequence[Any]], Any]:
    return lambda values: choose((element for element in values if element is not None), default=None)


# --- maps


def _of_map(result: Callable[[Type, Type], Type]) -> Infer:
    def infer(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
        takes(_MAP)(args)
        return result(*args[0].type.args)

    return infer


def _maps_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    takes(_MAP, _MAP, least=1, more=True)(args)
    return shared(args)


def _union(*maps: dict[Any, Any]) -> dict[Any, Any]:
    return {key: value for mapping in maps for key, value in mapping.items()}


def _from_arrays_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    takes(_ARRAY, _ARRAY)(args)
    return Type("MAP", args=(args[0].type.args[0], args[1].type.args[0]))


def _from_arrays(keys: Sequence[Any], values: Sequence[Any]) -> dict[Any, Any]:
    if len(keys) != len(values):
        raise Failed("MAP_FROM_ARRAYS of arrays of different lengths")
    return dict(zip(keys, values, strict=True))


def _str_to_map(text: str, entries: str = ",", pairs: str = "=") -> dict[str, str | None]:
    mapping: dict[str, str | None] = {}
    for entry in text.split(entries) if text else ():
        key, has, value = entry.partition(pairs)
        mapping[key] = value if has else None
    return mapping


def _str_to_map_types(args: Sequence[Expression], options: tuple[Any, ...]) -> Type:
    takes(TEXT, TEXT, TEXT, least=1)(args)
    for argument in args[1:]:
        mark = constant(argument)
        if not isinstance(mark, str) or not mark or set(mark) & set(".^$*+?()[]{}|\\"):
            raise WrongTypes("the separators are constants without characters of regular expressions")
    return Type("MAP", args=(STRING, STRING))


def _same_array(element: Type) -> Type:
    return _array(element)


_ENTRY = ("key", "value")

FUNCTIONS: dict[str, Function] = {
    "ARRAY": Function(_construct_types, _slice, nulls=True, bind=_construct, example="ARRAY[1, 2.5]",
                      gives="[1.0, 2.5]"),
    "MAP": Function(_map_types, _slice, nulls=True, bind=_map, example="MAP['a', 1]", gives="{a=1}"),
    "ROW": Function(_row_types, lambda *values: values, nulls=True, example="ROW(1, 'a')", gives="(1, a)"),
    "ITEM": Function(_item_types, _slice, bind=_item, example="MAP['a', 1]['a']", gives="1",
                     says="`a[i]`, counted from 1, and `m[key]`; NULL where there is none"),
    "FIELD": Function(_field_types, _slice, bind=_field, says="`r.name`"),
    "ELEMENT": Function(_element_types, _element, example="ELEMENT(ARRAY[5])", gives="5",
                        says="the only one; of several the row is dropped"),
    "CARDINALITY": Function(gives(INT, takes(("ARRAY", "MAP"))), len, example="CARDINALITY(ARRAY[1, 2])", gives="2"),
    "ARRAY_CONTAINS": Function(_of_array(lambda element: BOOLEAN, 1), _slice, nulls=True,
                               bind=_with_element(lambda values, element: element in values),
                               example="ARRAY_CONTAINS(ARRAY['a', 'b'], 'b')", gives="TRUE"),
    "ARRAY_POSITION": Function(_of_array(lambda element: INT, 1), _slice, nulls=True, bind=_with_element(_position),
                               example="ARRAY_POSITION(ARRAY['a', 'b'], 'b')", gives="2", says="0 for none"),
    "ARRAY_REMOVE": Function(_of_array(_same_array, 1), _slice, nulls=True, bind=_with_element(
        lambda values, unwanted: tuple(each for each in values if each != unwanted)),
        example="ARRAY_REMOVE(ARRAY[1, 2, 1], 1)", gives="[2]"),
    "ARRAY_APPEND": Function(_of_array(_same_array, 1), _slice, nulls=True, bind=_with_element(
        lambda values, element: (*values, element)), example="ARRAY_APPEND(ARRAY[1], 2)", gives="[1, 2]"),
    "ARRAY_PREPEND": Function(_of_array(_same_array, 1), _slice, nulls=True, bind=_with_element(
        lambda values, element: (element, *values)), example="ARRAY_PREPEND(ARRAY[1], 2)", gives="[2, 1]"),
    "ARRAY_DISTINCT": Function(_of_array(_same_array), _distinct, example="ARRAY_DISTINCT(ARRAY[1, 2, 1])",
                               gives="[1, 2]"),
    "ARRAY_REVERSE": Function(_of_array(_same_array), lambda values: values[::-1], example="ARRAY_REVERSE(ARRAY[1, 2])",
                              gives="[2, 1]"),
    "ARRAY_SLICE": Function(lambda args, options: takes(_ARRAY, WHOLE, WHOLE, least=2)(args) or args[0].type, _slice,
                            example="ARRAY_SLICE(ARRAY[1, 2, 3], 2, 3)", gives="[2, 3]"),
    "ARRAY_CONCAT": Function(_arrays_types, _slice, bind=_arrays(lambda *values: sum(values, ())),
                             example="ARRAY_CONCAT(ARRAY[1], ARRAY[2])", gives="[1, 2]"),
    "ARRAY_UNION": Function(_arrays_types, _slice, bind=_arrays(lambda *values: _distinct(sum(values, ()))),
                            example="ARRAY_UNION(ARRAY[1, 2], ARRAY[2, 3])", gives="[1, 2, 3]"),
    "ARRAY_INTERSECT": Function(_arrays_types, _slice, bind=_arrays(_intersect),
                                example="ARRAY_INTERSECT(ARRAY[1, 2], ARRAY[2, 3])", gives="[2]"),
    "ARRAY_EXCEPT": Function(_arrays_types, _slice, bind=_arrays(_except),
                             example="ARRAY_EXCEPT(ARRAY[1, 2], ARRAY[2, 3])", gives="[1]"),
    "ARRAY_MAX": Function(_of_array(lambda element: element), _extreme(max), example="ARRAY_MAX(ARRAY[1, 3])",
                          gives="3"),
    "ARRAY_MIN": Function(_of_array(lambda element: element), _extreme(min), example="ARRAY_MIN(ARRAY[1, 3])",
                          gives="1"),
    "ARRAY_SORT": Function(_sort_types, _sort, example="ARRAY_SORT(ARRAY[3, 1, 2])", gives="[1, 2, 3]",
                           says="ascending or not, NULL first or not"),
    "ARRAY_JOIN": Function(_join_types, _join, example="ARRAY_JOIN(ARRAY['a', 'b'], '-')", gives="a-b"),
    "MAP_KEYS": Function(_of_map(lambda key, value: _array(key)), tuple, example="MAP_KEYS(MAP['a', 1])", gives="[a]"),
    "MAP_VALUES": Function(_of_map(lambda key, value: _array(value)), lambda value: tuple(value.values()),
                           example="MAP_VALUES(MAP['a', 1])", gives="[1]"),
    "MAP_ENTRIES": Function(_of_map(lambda key, value: _array(Type("ROW", args=tuple(zip(_ENTRY, (key, value),
                            strict=True))))), lambda value: tuple(value.items()), example="MAP_ENTRIES(MAP['a', 1])",
                            gives="[(a, 1)]"),
    "MAP_UNION": Function(_maps_types, _union, example="MAP_UNION(MAP['a', 1], MAP['a', 2])", gives="{a=2}"),
    "MAP_FROM_ARRAYS": Function(_from_arrays_types, _from_arrays, example="MAP_FROM_ARRAYS(ARRAY['a'], ARRAY[1])",
                                gives="{a=1}"),
    "STR_TO_MAP": Function(_str_to_map_types, _str_to_map, example="STR_TO_MAP('a=1,b=2')", gives="{a=1, b=2}",
                           says="separators of entries and of pairs, `,` and `=` if not named"),
}  # fmt: skip
