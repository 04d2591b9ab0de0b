"""PyFlink's names as code that moves over imports them: ``pyflink.table.DataTypes``, ``pyflink.table.udf`` and
``pyflink.common.Row``, without PyFlink.

``install`` registers them as modules; only the child process does. After Apache Flink 2.3, ``pyflink/table/udf.py``.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from vedette.udf import job
from vedette.udf.datatypes import DataType, DataTypes, Dumped, Row, Unsupported, data_type_of
from vedette.udf.job import INERT, Inert


class FunctionContext:
    """What ``open`` is given. There are no metrics and no job parameters."""

    def get_metric_group(self) -> _Metrics:
        return _Metrics()

    def get_job_parameter(self, key: str, default_value: str) -> str:
        return default_value


class _Metrics:
    """Takes what is counted and keeps nothing of it."""

    def add_group(self, *names: str, **more: Any) -> _Metrics:
        return self

    def counter(self, name: str) -> _Metrics:
        return self

    meter = distribution = counter

    def gauge(self, name: str, obj: Any) -> None:
        return None

    def inc(self, n: int = 1) -> None:
        return None

    dec = update = mark_event = inc

    def get_count(self) -> int:
        return 0


class UserDefinedFunction:
    def open(self, function_context: FunctionContext) -> None:
        """Before the first row, once a process."""

    def close(self) -> None:
        """At the end of the process, when it ends by itself."""

    def is_deterministic(self) -> bool:
        return True


class ScalarFunction(UserDefinedFunction):
    """``eval(*args)``: a value for a row."""


class TableFunction(UserDefinedFunction):
    """``eval(*args)``: rows for a row, yielded or returned."""


class AggregateFunction(UserDefinedFunction):
    """``create_accumulator``, ``accumulate(accumulator, *args)``, ``merge(accumulator, accumulators)``,
    ``get_value(accumulator)``. ``retract`` is never called: rows are only added."""

    def create_accumulator(self) -> Any:
        raise NotImplementedError  # as in PyFlink: a class that lacks it fails where it is called

    def get_result_type(self) -> Any:
        raise TypeError("an aggregate names its result_type")

    def get_accumulator_type(self) -> Any:
        return None


class Wrapped:
    """What ``udf``, ``udtf`` and ``udaf`` make: a function with its types. ``kind``: ``scalar``, ``table``,
    ``aggregate``."""

    def __init__(
        self, kind: str, function: Any, input_types: Any, result: list[Dumped], deterministic: bool | None
    ) -> None:
        if not isinstance(function, UserDefinedFunction) and not callable(function):
            raise TypeError(f"{function!r:.60} is no function")
        self.kind, self.function = kind, function
        single = isinstance(input_types, DataType | str)
        types = [input_types] if single else input_types
        self.input_types = None if types is None else [data_type_of(type_).dumped for type_ in types]
        self.result = result
        self.deterministic = deterministic if deterministic is not None else self._says()
        functools.update_wrapper(self, function, updated=())

    def _says(self) -> bool:
        return self.function.is_deterministic() if isinstance(self.function, UserDefinedFunction) else True

    def method(self, name: str) -> Callable[..., Any]:
        """``eval``, or a method of an aggregate."""
        if isinstance(self.function, UserDefinedFunction):
            method: Callable[..., Any] = getattr(self.function, name)
            return method
        if name != "eval":
            raise TypeError(f"{self.function!r:.60} has no {name}")
        plain: Callable[..., Any] = self.function
        return plain

    def arguments(self) -> tuple[int, int | None]:
        """How few and how many arguments it takes; None: any number."""
        called = self.method("accumulate" if self.kind == "aggregate" else "eval")
        try:
            parameters = [*inspect.signature(called).parameters.values()]
        except (TypeError, ValueError):
            return 0, None
        if self.kind == "aggregate":
            parameters = parameters[1:]
        plain = [
            parameter
            for parameter in parameters
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
        most = None if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters) else len(plain)
        return sum(parameter.default is parameter.empty for parameter in plain), most

    def __call__(self, *args: Any) -> Any:
        if any(isinstance(arg, Inert) for arg in args):  # a column of the job's Table API
            return INERT
        raise TypeError("a function of SQL is called by SQL; give the plain function a name of its own to call it")


def _general(func_type: str) -> None:
    if func_type != "general":
        raise Unsupported(f"func_type={func_type!r} is not supported: write the function for one row (general)")


def udf(
    f: Any = None, input_types: Any = None, result_type: Any = None, deterministic: bool | None = None,
    name: str | None = None, func_type: str = "general", udf_type: str | None = None,
) -> Any:  # fmt: skip
    """A ``ScalarFunction`` or a plain function as a function of SQL; also as a decorator."""
    _general(udf_type or func_type)
    if result_type is None:
        raise TypeError("udf names its result_type")
    result = [data_type_of(result_type).dumped]
    return _made("scalar", f, input_types, lambda _: result, deterministic)


def udtf(
    f: Any = None, input_types: Any = None, result_types: Any = None, deterministic: bool | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """A ``TableFunction`` or a generator as a function of FROM."""
    if result_types is None:
        raise TypeError("udtf names its result_types")
    several = [result_types] if isinstance(result_types, DataType | str) else list(result_types)
    result = [data_type_of(type_).dumped for type_ in several]
    if len(result) == 1 and result[0][1] == "ROW":
        result = [pair[2] for pair in result[0][4][1:]]
    return _made("table", f, input_types, lambda _: result, deterministic)


def udaf(
    f: Any = None, input_types: Any = None, result_type: Any = None, accumulator_type: Any = None,
    deterministic: bool | None = None, name: str | None = None, func_type: str = "general",
) -> Any:  # fmt: skip
    """An ``AggregateFunction`` as an aggregate of SQL."""
    _general(func_type)

    def result(function: Any) -> list[Dumped]:
        if not isinstance(function, AggregateFunction):
            raise TypeError(f"udaf takes an AggregateFunction, not {function!r:.60}")
        return [data_type_of(result_type if result_type is not None else function.get_result_type()).dumped]

    return _made("aggregate", f, input_types, result, deterministic)


def _made(
    kind: str, f: Any, input_types: Any, result: Callable[[Any], list[Dumped]], deterministic: bool | None
) -> Any:
    def decorate(function: Any) -> Wrapped:
        if inspect.isclass(function):
            raise TypeError(f"{function.__name__} is a class: give an object of it, {function.__name__}()")
        return Wrapped(kind, function, input_types, result(function), deterministic)

    return decorate if f is None else decorate(f)


def _refused(name: str, instead: str) -> type:
    def new(cls: type, *args: Any, **named: Any) -> Any:
        raise Unsupported(f"{name} is not supported: {instead}")

    return type(name, (), {"__new__": new})


def install() -> None:
    """Register the modules. What else of PyFlink functions could be made of is refused by its name; what jobs are made
    of does nothing (``job.py``)."""
    from_udf = {
        public.__name__: public
        for public in (udf, udtf, udaf, FunctionContext, UserDefinedFunction, ScalarFunction, TableFunction,
                    AggregateFunction)
    }  # fmt: skip
    views = {
        "ListView": _refused("ListView", "keep a list in the accumulator"),
        "MapView": _refused("MapView", "keep a dict in the accumulator"),
    }
    types = {"DataTypes": DataTypes, "DataType": DataType, "Row": Row}
    packages: dict[str, dict[str, Any]] = {
        "pyflink": {},
        "pyflink.common": {"Row": Row},
        "pyflink.common.types": {"Row": Row},
        "pyflink.table": {**from_udf, **types, **views, **{name: job.named(name) for name in job.OF_TABLE}},
        "pyflink.table.types": types,
        "pyflink.table.data_view": views,
        "pyflink.table.udf": {
            **from_udf,
            "TableAggregateFunction": _refused("TableAggregateFunction", "an AggregateFunction, or ROW_NUMBER()"),
        },
    }
    for name, held in packages.items():
        kind = job.JobModule if name == "pyflink.common" else ModuleType
        module = kind(name, "PyFlink's names, for functions that Vedette runs.")
        module.__dict__.update(held)
        module.__path__ = []
        sys.modules[name] = module
        above, _, last = name.rpartition(".")
        if above:
            setattr(sys.modules[above], last, module)
    sys.meta_path.append(job.Finder())
