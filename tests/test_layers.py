"""The layers of DESIGN §4, read from the imports of every module: they go downwards only."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parent.parent / "agent" / "vedette"

LAYERS: dict[int, str] = {
    # facts
    0: "vedette event report",
    # cores: bytes and values in, values out (engine.scan is here because a pattern database is that, too)
    1: """
    bundle.manifest bundle.seal bundle.trust
    compiler.explain compiler.ir compiler.limits compiler.literals compiler.plan compiler.reach compiler.relation
    compiler.window compiler.witness
    engine.artifact engine.cache engine.evaluate engine.fallback engine.group engine.join engine.match engine.patterns
    engine.prefilter engine.remembered engine.scan engine.selftest engine.timepart
    inputs.access inputs.aliases inputs.batches inputs.cisco inputs.codecs inputs.compressed inputs.decode
    inputs.deliver inputs.entities inputs.formats.auditd inputs.formats.base inputs.formats.cef
    inputs.formats.eventlog inputs.formats.eventxml inputs.formats.fortinet inputs.formats.leef
    inputs.formats.services inputs.formats.table inputs.formats.weblog inputs.formats.windows
    inputs.formats.zeek inputs.framing inputs.names inputs.ownlog inputs.peers inputs.phrases inputs.programs
    inputs.provenance inputs.sources inputs.syslog inputs.values
    outbox.columns outbox.envelope outbox.parquet outbox.receipts outbox.topics
    rawlog.format rawlog.note
    scan terminal
    state.clock state.correlate state.decide state.firing state.graph state.groups state.measure state.memory
    state.packed state.recency state.slides state.suppress state.windows
    """,
    # doors: each owns one outside thing; the rule front-ends own the rule files
    2: """
    bundle.attempts bundle.install
    compiler.rechoose
    compiler.build compiler.cases compiler.correlation compiler.documents compiler.legacy compiler.lint
    compiler.pipelines compiler.sigma
    compiler.expression compiler.faults compiler.modifiers compiler.ruleset
    allocator budgets child config control descriptors durable environment logs mqtt notify quarantine rebuild reload
    shown store storecheck tls trouble wallclock
    inputs.accept inputs.activation inputs.bind inputs.bursts inputs.datagrams inputs.files inputs.listen
    inputs.subscribe inputs.tail
    outbox.directory outbox.landing outbox.queue outbox.uplink
    rawlog.log rawlog.read rawlog.recover rawlog.repack rawlog.replay rawlog.rewrite rawlog.segment rawlog.shelf
    rawlog.verify
    """,
    # composition
    3: """
    account alerts api app arrivals committing doors failures judging metrics pipeline progress rules shutdown status
    storing tryout
    """,
    # commands
    4: """
    __main__ cli cli_agent cli_bundle cli_rules console compiler.__main__
    region.authority region.build region.cli region.enroll region.gaps region.kafka region.land region.polyglot
    region.publish region.sign region.sitezip
    """,
}
LAYER = {name: layer for layer, names in LAYERS.items() for name in names.split()}
"""Every module under agent/vedette; a package's own ``__init__`` holds nothing but its docstring."""

OUTSIDE = {"asyncio", "fcntl", "glob", "os", "pathlib", "selectors", "signal", "socket", "ssl", "structlog",
           "subprocess", "tempfile", "threading", "time"}  # fmt: skip
"""What no core may import."""
ONLY = {"lmdb": {"environment"}, "paho": {"mqtt"}, "hyperscan": {"engine.scan"}}
FRONT_ENDS = {"compiler.build", "compiler.cases", "compiler.correlation", "compiler.documents", "compiler.legacy",
              "compiler.expression", "compiler.faults", "compiler.lint", "compiler.modifiers",
              "compiler.pipelines", "compiler.ruleset", "compiler.sigma"}  # fmt: skip
WRITES_RULES = {"api", "console", "cli_rules", "region.cli", "compiler.__main__"}
"""Who may use the front-ends, and but for the compiler's own process only when it is asked to."""


class Import(NamedTuple):
    """``who`` imports ``what`` (one of ours without ``vedette.``), in a function or at module level."""

    who: str
    what: str
    lazy: bool


def modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[-1] == "__init__" and len(parts) > 1:
            continue
        found["vedette" if parts == ("__init__",) else ".".join(parts)] = path
    return found


MODULES = modules()


def _targets(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    assert node.level == 0, "relative import"
    base = node.module or ""
    inner = base.removeprefix("vedette.") if base != "vedette" else ""
    for alias in node.names:  # ``from vedette.rawlog import read`` names a module, ``from vedette.event import X`` none
        name = f"{inner}.{alias.name}" if inner else alias.name
        is_module = base.split(".")[0] == "vedette" and name in MODULES
        yield f"vedette.{name}" if is_module else base


def imports() -> list[Import]:
    found = []

    def walk(who: str, node: ast.AST, lazy: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, ast.Import | ast.ImportFrom):
                for what in _targets(child):
                    ours = what.removeprefix("vedette.") if what.startswith("vedette") else what
                    found.append(Import(who, ours, lazy))
            walk(who, child, lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))

    for who, path in MODULES.items():
        walk(who, ast.parse(path.read_text("utf-8")), False)
    return found


IMPORTS = imports()
INNER = [one for one in IMPORTS if one.what in MODULES and one.who != "vedette"]


def test_every_module_has_a_layer() -> None:
    """The table above names every module there is, and no other."""
    assert set(MODULES) == set(LAYER)


def test_packages_are_empty() -> None:
    """A package's ``__init__`` imports nothing: importing a module brings in no neighbour."""
    for path in PACKAGE.rglob("*/__init__.py"):
        body = ast.parse(path.read_text("utf-8")).body
        assert all(isinstance(node, ast.Expr) for node in body), path


@pytest.mark.parametrize("layer", range(4))
def test_imports_go_downwards(layer: int) -> None:
    """No module imports one of a layer above its own, not even in a function."""
    upwards = [one for one in INNER if LAYER[one.who] == layer < LAYER[one.what]]
    assert not upwards


def test_cores_touch_nothing_outside() -> None:
    """No core imports asyncio, sockets, files, threads, the clock or the log; but one that must bound a time."""
    outside = [one for one in IMPORTS if LAYER[one.who] <= 1 and one.what.split(".")[0] in OUTSIDE]
    assert {(one.who, one.what) for one in outside} == {("engine.fallback", "time")}


def test_facts_need_only_the_standard_library() -> None:
    """Layer 0 imports nothing but the standard library and itself."""
    allowed = {*sys.stdlib_module_names, *LAYERS[0].split()}
    foreign = [one for one in IMPORTS if LAYER[one.who] == 0 and not one.lazy and one.what.split(".")[0] not in allowed]
    assert not foreign


@pytest.mark.parametrize("library", ONLY)
def test_one_owner_for_each_outside_thing(library: str) -> None:
    """LMDB, paho and Hyperscan are each imported by one module."""
    assert {one.who for one in IMPORTS if one.what.split(".")[0] == library} == ONLY[library]


def test_nothing_on_the_edge_imports_the_region() -> None:
    """Only the region itself does, and the command line when one of its commands is asked for."""
    users = {
        (one.who, one.lazy) for one in INNER if one.what.startswith("region.") and not one.who.startswith("region.")
    }
    assert {lazy for _, lazy in users} <= {True}
    assert {LAYER[who] for who, _ in users} <= {4}


def test_front_ends_only_where_rules_are_written() -> None:
    """The rule compiler's front-ends are imported by those who write rules, and there in functions only."""
    users = [one for one in INNER if one.what in FRONT_ENDS and one.who not in FRONT_ENDS]
    assert {one.who for one in users} <= WRITES_RULES
    assert {one.who for one in users if not one.lazy} <= {"compiler.__main__"}


def test_the_agent_starts_without_what_it_does_not_need() -> None:
    """Importing the agent and its command line loads neither pySigma nor YAML, the region or the Python API."""
    program = "import sys, vedette.app, vedette.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    unwanted = (
        "sigma",
        "yaml",
        "pyarrow",
        "pyspark",
        "vedette.region",
        "vedette.api",
        "vedette.compiler.sigma",
    )
    assert not [name for name in loaded if name in unwanted or name.startswith(tuple(f"{one}." for one in unwanted))]
