"""The scalar functions by name, as ``Call.name`` has them; what SQL writes as an operator is one, too.

A row says which types it takes and gives (``infer``) and what computes it; ``stream/expression.py`` compiles calls to
Python code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vedette.plan.query import Expression, Type


class WrongTypes(ValueError):
    """A function cannot take arguments of these types; the text says which it takes."""


@dataclass(frozen=True)
class Function:
    """One row.

    ``infer``: of the arguments (with their types) and options the type of the value; raises ``WrongTypes``.
    ``implementation``: what computes it of the arguments' values, options last; NULL in any argument gives NULL without
    a call, unless ``nulls``.
    """

    infer: Callable[[Sequence[Expression], tuple[Any, ...]], Type]
    implementation: Callable[..., Any]
    nulls: bool = False
    """Whether it is called with NULL as well."""
    example: str = ""
    """SQL that shows it, for ``docs/sql.md``."""


FUNCTIONS: dict[str, Function] = {}
