"""PyFlink's names for the job that a module of functions may hold beside them: they are there and do nothing.

A class of the job can be called, subclassed, asked for any attribute, compared and gone through; what comes of it is
likewise inert. So ``TableEnvironment.create(…)``, ``env.execute_sql(…)`` and ``col("a") + lit(1)`` run where a module
is imported, and say nothing: statements are in ``.sql`` files. What functions themselves are made of is in ``shim.py``;
of ``pyflink.table`` the names and modules below are a job's, of all other modules of PyFlink every name is.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
from types import ModuleType
from typing import Any

OF_TABLE = tuple(
    """TableEnvironment StreamTableEnvironment Table StatementSet EnvironmentSettings TableConfig GroupedTable
    GroupWindowedTable OverWindowedTable WindowGroupedTable TableDescriptor FormatDescriptor Schema Module ModuleEntry
    SqlDialect Expression TableSchema TableResult RowKind ChangelogMode ExplainDetail ResultKind CompiledPlan
    PlanReference TablePipeline""".split()  # noqa: SIM905  # a page of quotes
)
_MODULES = frozenset(
    """catalog changelog_mode compiled_plan descriptors environment_settings explain_detail expression expressions
    functions model_descriptor module plan_reference resolved_expression result_kind schema sql_dialect statement_set
    table table_config table_descriptor table_environment table_pipeline table_result table_schema utils
    window""".split()  # noqa: SIM905
)
_SIGNS = (
    "add radd sub rsub mul rmul truediv rtruediv mod rmod pow rpow neg pos and rand or ror xor invert eq ne lt le gt ge"
    " getitem call enter rshift lshift"
)


INERT: Inert


class _Names(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return INERT


class Inert(metaclass=_Names):
    """Anything of a job."""

    def __init__(self, *args: Any, **named: Any) -> None:
        """Whatever it is made of."""

    def __class_getitem__(cls, of: Any) -> Any:
        return cls

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return INERT

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __exit__(self, *raised: object) -> None:
        return None

    def __setitem__(self, key: Any, value: Any) -> None:
        """Nothing is kept."""

    __hash__ = object.__hash__


for _sign in _SIGNS.split():
    setattr(Inert, f"__{_sign}__", lambda self, *args, **named: INERT)
INERT = Inert()


def named(name: str) -> type[Inert]:
    """A class of the job."""
    return type(name, (Inert,), {})


class JobModule(ModuleType):
    """A module of PyFlink that only jobs need."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return named(name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of PyFlink that are a job's."""

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        top, *below = fullname.split(".")
        if top != "pyflink" or (below[0] == "table" and not (len(below) == 2 and below[1] in _MODULES)):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return JobModule(spec.name, "PyFlink's names, which do nothing.")

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""
