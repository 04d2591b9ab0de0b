"""The rooms of the package, read from the real imports: each imports what it declares, one way only."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.differences import walk

PACKAGE = Path(__file__).parent.parent / "agent" / "vedette"
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
PURE = {"model", "decode", "plan", "engine", "state", "stream"}
"""Rooms of bytes and values: no I/O, no threads, no clock, no log."""
OUTSIDE = {"asyncio", "fcntl", "glob", "os", "pathlib", "selectors", "signal", "socket", "ssl", "structlog",
           "subprocess", "tempfile", "threading", "time"}  # fmt: skip
ONLY = {
    "lmdb": {"store.environment"},
    "paho": {"mqtt.connection"},
    "hyperscan": {"plan.database"},
    "urllib3": {"region.feeds.web", "sinks.http", "system.https"},
}
"""Libraries that one module owns."""
FRONT_ENDS = {"build", "sigma", "sql", "authoring.cases", "authoring.lint"}
"""Parts of ``rules`` that read rule files; they load pySigma and sqlglot."""


class Import(NamedTuple):
    """``who`` imports ``what`` (without ``vedette.``) at module level; ``lazy``: in a function, or for types."""

    who: str
    what: str
    lazy: bool

    @property
    def rooms(self) -> tuple[str, str]:
        return self.who.split(".")[0], self.what.split(".")[0]


def modules() -> dict[str, Path]:
    paths = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[-1] != "__init__":
            paths[".".join(parts)] = path
    return paths


MODULES = modules()


def _targets(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    assert node.level == 0, "relative import"
    base = node.module or ""
    inner = base.removeprefix("vedette").removeprefix(".")
    for alias in node.names:  # an imported name is a module or something in one
        name = f"{inner}.{alias.name}" if inner else alias.name
        is_module = base.split(".")[0] == "vedette" and name in MODULES
        yield f"vedette.{name}" if is_module else base


def imports() -> list[Import]:
    collected = []

    def visit(who: str, node: ast.AST, lazy: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import | ast.ImportFrom):
                collected.extend(Import(who, what.removeprefix("vedette."), lazy) for what in _targets(child))
            for_types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            visit(who, child, lazy or for_types or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))

    for who, path in MODULES.items():
        visit(who, ast.parse(path.read_text("utf-8")), False)
    return collected


IMPORTS = imports()
USED: dict[str, set[str]] = defaultdict(set)
for _import in IMPORTS:
    if _import.what in MODULES and _import.rooms[1] in ROOMS:
        USED[_import.rooms[0]].add(_import.rooms[1])


def declared(room: str) -> set[str]:
    """The rooms that the docstring of ``room`` allows it to import."""
    text = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text("utf-8"))) or ""
    match = re.search(r"^Imports: ([\w,\s]+)\.$", text, re.MULTILINE)
    assert match, f"{room}/__init__.py has no line 'Imports: …'"
    return {name for name in re.split(r",\s+", match[1]) if name != "nothing of Vedette"}


def test_every_module_has_a_room() -> None:
    """Flat at the top of the package lie the public API, the entry point and the version, nothing else."""
    assert {name for name in MODULES if "." not in name} == {"__main__", "api", "plugins", "version"}


@walk("room", ROOMS)
def test_a_room_imports_what_it_declares(room: str) -> None:
    """The real imports of a room, those in functions and for types included, are those of its docstring."""
    assert USED[room] - {room} == declared(room)


def test_imports_go_one_way() -> None:
    """The rooms have an order in which each imports earlier ones only: there is no cycle."""
    order = [*TopologicalSorter({room: declared(room) for room in ROOMS}).static_order()]
    assert sorted(order) == ROOMS


def test_no_circle_of_modules() -> None:
    """No module is imported by what it imports, in functions and for types included; none imports the package itself,
    which gives the API."""
    graph = {name: {entry.what for entry in IMPORTS if entry.who == name and entry.what in MODULES} for name in MODULES}
    assert {*TopologicalSorter(graph).static_order()} == {*MODULES}
    assert not [entry for entry in IMPORTS if entry.what == "vedette"]


def test_packages_are_empty() -> None:
    """A room's ``__init__`` imports nothing: importing a module brings in no neighbour."""
    for path in PACKAGE.rglob("*/__init__.py"):
        body = ast.parse(path.read_text("utf-8")).body
        assert all(isinstance(node, ast.Expr) for node in body), path


def test_pure_rooms_touch_nothing_outside() -> None:
    """No pure room imports asyncio, sockets, files, threads, the clock or the log, but two modules bound a time
    and one asks the environment whether the kernel is switched off."""
    outside = [entry for entry in IMPORTS if entry.rooms[0] in PURE and entry.what.split(".")[0] in OUTSIDE]
    assert {(entry.who, entry.what) for entry in outside} == {
        ("decode.bounded", "time"),
        ("engine.fallback", "time"),
        ("engine.kernel", "os"),
    }


def test_facts_need_only_the_standard_library() -> None:
    """``model`` imports nothing but the standard library and itself."""
    allowed = {*sys.stdlib_module_names, "model"}
    assert not [
        entry for entry in IMPORTS if entry.rooms[0] == "model" and not entry.lazy and entry.rooms[1] not in allowed
    ]


@pytest.mark.parametrize("library", ONLY)
def test_one_owner_for_each_library(library: str) -> None:
    """LMDB, paho and Hyperscan are each imported by one module."""
    assert {entry.who for entry in IMPORTS if entry.what.split(".")[0] == library} == ONLY[library]


def test_nothing_on_the_edge_imports_the_region() -> None:
    """Only the region's commands do, and they are loaded when one of them is called."""
    assert {entry.who for entry in IMPORTS if entry.rooms[1] == "region" != entry.rooms[0]} == {
        "cli.asking",
        "cli.author",
        "cli.enroller",
        "cli.fleet_ask",
        "cli.fleet_carry",
        "cli.fleet_centre",
        "cli.fleet_hunt",
        "cli.fleet_rollout",
        "cli.lookup_fetch",
        "cli.lookup_refresh",
        "cli.lookup_sign",
        "cli.member",
        "cli.region",
        "cli.steer",
    }
    late = ("cli.author", "cli.enroller", "cli.fleet_carry", "cli.fleet_centre", "cli.fleet_rollout", "cli.member",
            "cli.region", "cli.steer")  # fmt: skip
    assert not [entry for entry in IMPORTS if entry.what in late and entry.who not in late]


def test_front_ends_only_where_rules_are_written() -> None:
    """The rule front ends are imported by those who write rules, and there in functions only."""
    front_ends = {name for name in MODULES for part in FRONT_ENDS if f"{name}.".startswith(f"rules.{part}.")}
    inside = {name for name in front_ends if name.startswith(("rules.sigma.", "rules.sql."))}
    assert {entry.who for entry in IMPORTS if entry.what in inside} - inside == front_ends - inside
    users = [entry for entry in IMPORTS if entry.what in front_ends and entry.who not in front_ends]
    assert {entry.who for entry in users} <= {
        "api",
        "cli.options",
        "cli.lookup",
        "cli.rules",
        "cli.author",
        "rules.__main__",
        "rules.tables",
    }
    assert {entry.who for entry in users if not entry.lazy} <= {"rules.__main__"}


def test_the_agent_starts_without_what_it_does_not_need() -> None:
    """Importing the agent and its command line loads no reader of rules or YAML, no region, no Python API."""
    program = "import sys, vedette.runtime.agent.app, vedette.cli.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    unwanted = (
        "sigma",
        "sqlglot",
        "yaml",
        "pyarrow",
        "pyspark",
        "tuf",
        "securesystemslib",
        "urllib3",
        "vedette.region",
        "vedette.api",
        "vedette.rules.sigma",
        "vedette.rules.sql",
    )
    assert not [name for name in loaded if name in unwanted or name.startswith(tuple(f"{part}." for part in unwanted))]


def test_the_page_of_the_architecture() -> None:
    """docs/architecture.md lists each room with its promise, in an order in which imports go upwards."""
    page = (PACKAGE.parents[1] / "docs" / "architecture.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)/` \| (.*) \|$", page, re.MULTILINE))
    assert sorted(rows) == ROOMS
    above: set[str] = set()
    for room, text in rows.items():
        lines = (ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text("utf-8"))) or "").splitlines()
        assert text == f"{lines[0]} {lines[2]}"
        assert declared(room) <= above
        above.add(room)


SPARK = PACKAGE.parents[1] / "spark_jobs"
SPARK_ROOMS = sorted(path.parent.name for path in SPARK.glob("*/__init__.py"))


def spark_imports(room: str) -> set[str]:
    """The rooms of the Spark jobs that the modules of ``room`` import."""
    nodes = [node for path in (SPARK / room).glob("*.py") for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    used = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return {name.split(".")[1] for name in used if name.startswith("spark_jobs.")} - {room}


def test_the_rooms_of_the_spark_jobs() -> None:
    """Each room of ``spark_jobs`` imports what it declares, without a cycle; flat at the top is only the command."""
    assert {path.stem for path in SPARK.glob("*.py")} == {"__init__", "__main__"}
    graph = {}
    for room in SPARK_ROOMS:
        text = ast.get_docstring(ast.parse((SPARK / room / "__init__.py").read_text("utf-8"))) or ""
        match = re.search(r"^Imports: ([\w,\s]+)\.$", text, re.MULTILINE)
        assert match, room
        graph[room] = {name for name in re.split(r",\s+", match[1]) if name != "nothing of the jobs"}
        assert spark_imports(room) == graph[room], room
    assert sorted(TopologicalSorter(graph).static_order()) == SPARK_ROOMS
