"""Tests of a table: all its cases are walked, and every one that differs is listed, by name, when the walk is over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from inspect import signature
from pathlib import Path
from traceback import extract_tb
from typing import Any

import pytest


@contextmanager
def differences() -> Iterator[Callable[..., AbstractContextManager[None]]]:
    """``case(*names)`` around each case: what fails or raises there is listed at the end. No cases are a failure."""
    cases = 0
    listed: list[str] = []

    @contextmanager
    def case(*names: object) -> Iterator[None]:
        nonlocal cases
        cases += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            place = extract_tb(error.__traceback__)[-1]
            why = str(error) if isinstance(error, (AssertionError, pytest.fail.Exception)) else repr(error)
            head = f"{', '.join(map(str, names))} ({Path(place.filename).name}:{place.lineno})"
            listed.append(f"{head}\n{why}".replace("\n", "\n    "))

    yield case
    assert cases, "a table without cases"
    if listed:
        pytest.fail("\n".join((f"{len(listed)} of {cases} cases differ", *listed)), pytrace=False)


def walk(names: str | tuple[str, ...], table: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As ``pytest.mark.parametrize``, but one test. Of fixtures ``tmp_path`` is a new folder in each case."""

    def walked(test: Callable[..., None]) -> Callable[..., None]:
        own = (names,) if isinstance(names, str) else names

        @wraps(test)
        def whole(**fixtures: Any) -> None:
            with differences() as case:
                for number, row in enumerate(table):
                    values = (row,) if isinstance(names, str) else row
                    arguments = fixtures | dict(zip(own, values, strict=True))
                    if folder := fixtures.get("tmp_path"):
                        arguments["tmp_path"] = folder / str(number)
                        arguments["tmp_path"].mkdir()
                    with case(*values):
                        test(**arguments)

        parameters = signature(test).parameters.values()
        whole.__signature__ = signature(test).replace(parameters=[one for one in parameters if one.name not in own])
        return whole

    return walked
