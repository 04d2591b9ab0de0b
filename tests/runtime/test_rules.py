"""Which rules run: a folder built in a child process, its cache, and bundles; in memory, without an agent."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

import vedette.runtime.rulesets.rules
from tests.e2e.faults import tmpfs
from tests.lookup.tables import lookup_of
from tests.waits import write_as_before
from vedette import compile_rules
from vedette.bundle.seal import BundleRefused
from vedette.config.settings import AgentSettings, BundleSettings, Config, RuleSettings
from vedette.engine.artifact import Artifact
from vedette.engine.match import Engine
from vedette.inputs.settings import SyslogInput
from vedette.model.event import Chunk, LogSource
from vedette.plan.ir import Leaf, Op, Or, Predicate
from vedette.plan.ir import Rule as Compiled
from vedette.plan.plan import Plan
from vedette.region.build import build
from vedette.region.sign import keygen, load_key, sign
from vedette.runtime.rulesets import bundled, validate
from vedette.runtime.rulesets.bundled import BundledRules
from vedette.runtime.rulesets.rules import RETUNE_SECONDS, FolderRules, Loaded
from vedette.system import child
from vedette.system.versions import Versions

T = TypeVar("T")

RULE = """\
title: Marker {word}
id: 6a1f0000-0000-4000-8000-{number:012}
logsource: {{product: linux}}
detection:
    keywords: ['{word}']
    condition: keywords
level: low
"""
ASKING = """\
title: Known user
id: 6a1f0000-0000-4000-8000-000000000099
logsource: {product: linux}
detection:
    known:
        user|expand: '%users%'
    condition: known
level: low
"""
NOW = time.time_ns() // 1000
DAY = 86_400_000_000


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def rule(folder: Path, word: str, number: int = 0) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{word}.yml"
    path.write_text(RULE.format(word=word, number=number))
    return path


def words(engine: Engine, text: str = "alpha beta gamma") -> set[str]:
    """The words whose rules are true for ``text``."""
    judged = Engine(engine.plan, engine.databases(), route=False)
    chunk = Chunk("in", "text", 0, text.encode() + b"\n")
    return {judged.plan.rules[match.rule].title.removeprefix("Marker ") for match in judged.evaluate(chunk)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A rule folder with one rule."""
    rule(tmp_path / "rules", "alpha", 1)
    return tmp_path / "rules"


def of_folder(tmp_path: Path, sample: bytes = b"") -> FolderRules:
    agent = AgentSettings(data_dir=tmp_path / "data")
    config = Config(agent=agent, rules=RuleSettings((tmp_path / "rules",)))
    return FolderRules(config, lambda: sample, config.rulesets[0])


def test_scans_are_made_for_the_inputs_there_are(tmp_path: Path, folder: Path) -> None:
    """When inputs change, in the engine that runs and in later ones: an input that few rules can meet has its own."""
    for number, word in enumerate(("beta", "gamma", "delta", "epsilon"), 2):
        path = rule(folder, word, number)
        path.write_text(path.read_text().replace("product: linux", "product: windows"))
    rules = of_folder(tmp_path)
    engine = run(rules.start()).engine
    linux = SyslogInput("lines", logsource=LogSource("linux"), format="text")
    assert engine._at_input("text", linux.logsource)[2] is engine.prefilter
    run(rules.adopt([linux], engine))
    assert engine._at_input("text", linux.logsource)[2] is not engine.prefilter
    (folder / "beta.yml").unlink()
    later = run(rules.reload()).engine
    assert later._at_input("text", linux.logsource)[2] is not later.prefilter


def test_a_folder_is_built_and_cached(tmp_path: Path, folder: Path) -> None:
    """The first start builds; the next, of another process, loads what was built."""
    rules = of_folder(tmp_path)
    loaded = run(rules.start())
    assert words(loaded.engine) == {"alpha"}
    assert (loaded.bundle, rules.error) == (None, None)
    (built,) = (tmp_path / "data" / "cache").iterdir()
    os.utime(built, (1, 1))
    began = built.stat().st_ino
    assert words(run(of_folder(tmp_path).start()).engine) == {"alpha"}
    assert built.stat().st_ino == began


def test_a_change_is_seen_and_built(tmp_path: Path, folder: Path) -> None:
    """A file that comes, changes or goes is a change, once; the folder as it is then runs."""
    rules = of_folder(tmp_path)
    run(rules.start())
    assert not rules.changed()
    new = rule(folder, "beta", 2)
    assert rules.changed()
    assert words(run(rules.reload()).engine) == {"alpha", "beta"}
    assert not rules.changed()
    new.write_text(RULE.format(word="gamma", number=2) + "\n# longer\n")
    assert rules.changed()
    assert words(run(rules.reload()).engine) == {"alpha", "gamma"}
    write_as_before(new, new.read_bytes().replace(b"gamma", b"delta"))
    assert rules.changed()
    assert words(run(rules.reload()).engine) == {"alpha"}
    new.unlink()
    assert rules.changed()
    assert words(run(rules.reload()).engine) == {"alpha"}


def test_a_folder_that_cannot_be_built(tmp_path: Path, folder: Path) -> None:
    """It is refused with the reason, once, until it changes; at start the last set that could be built runs."""
    rules = of_folder(tmp_path)
    run(rules.start())
    (folder / "alpha.yml").write_text("title: [\n")
    with pytest.raises(ValueError, match=r"no rule can run: .*alpha\.yml:"):
        run(rules.reload())
    assert rules.error is not None
    assert "alpha.yml" in rules.error
    assert not rules.changed()

    again = of_folder(tmp_path)
    loaded = run(again.start())
    assert words(loaded.engine) == {"alpha"}
    assert loaded.origin == "the last rules that could be built"
    assert again.error == rules.error
    rule(folder, "alpha", 1)
    assert words(run(again.reload()).engine) == {"alpha"}
    assert again.error is None


def test_no_folder_and_nothing_built(tmp_path: Path) -> None:
    """Without rules that work there is no start, and the message names the folder."""
    with pytest.raises(OSError, match=f"{tmp_path}/rules"):
        run(of_folder(tmp_path).start())


def test_bad_files_among_good_ones(tmp_path: Path, folder: Path) -> None:
    """A file that is no rule is listed with its line, and the others run."""
    bad = ("3", "{s: {user: {{ admin_user }}}, condition: s}", "{s: [1, condition: s}")
    for number, detection in enumerate(bad):
        path = folder / f"bad{number}.yml"
        path.write_text(f"title: Bad {number}\nlogsource: {{product: linux}}\ndetection: {detection}\n")
    plan = run(of_folder(tmp_path).start()).engine.plan
    assert [rule.title for rule in plan.rules] == ["Marker alpha"]
    places = sorted(str(refusal).partition(".yml:")[0] for refusal in plan.refused)
    assert places == [f"{folder}/bad{number}" for number in range(len(bad))]


def test_what_a_folder_lists_and_is_no_file(tmp_path: Path, folder: Path) -> None:
    """An editor's lock is no rule; a dead link and a pipe are refused alone, and a new rule beside them runs."""
    rules = of_folder(tmp_path)
    run(rules.start())
    (folder / ".#alpha.yml").symlink_to("bob@host.1:17")
    assert not rules.changed()
    (folder / "dead.yml").symlink_to("nowhere")
    os.mkfifo(folder / "pipe.yml")
    rule(folder, "beta", 2)
    assert rules.changed()
    loaded = run(rules.reload())
    assert words(loaded.engine) == {"alpha", "beta"}
    refused = {Path(one.path).name: one.reason for one in loaded.engine.plan.refused}
    assert refused.keys() == {"dead.yml", "pipe.yml"}
    assert all("cannot be read" in reason for reason in refused.values())


def test_a_lookup_that_is_written_over_in_place(tmp_path: Path) -> None:
    """What is asked is no file that others write: cut off in place it answers as before, also after a start, and is
    refused by name until it is whole. One that is installed counts before it."""
    path, rules, installed = tmp_path / "own" / "users.vlookup", tmp_path / "rules", tmp_path / "data" / "lookups"
    for folder in (path.parent, rules, installed):
        folder.mkdir(parents=True)
    (rules / "rule.yml").write_text(ASKING)
    first = lookup_of(path, "user", "user:nocase", [("it",)])
    second = lookup_of(tmp_path / "second.vlookup", "user", "user:nocase", [("ot",)])
    agent = AgentSettings(data_dir=tmp_path / "data")
    config = Config(agent=agent, rules=RuleSettings((rules,), lookups=(path.parent,)))

    def in_use(loaded: Loaded | None) -> str:
        assert loaded is not None
        (lookup,) = loaded.engine.plan.lookups.values()
        assert lookup.path.is_relative_to(tmp_path / "data")
        return lookup.version

    rules_of = FolderRules(config, bytes, config.rulesets[0])
    assert in_use(run(rules_of.start())) == first.version
    assert not rules_of.changed()
    path.write_bytes(second.data[:-1])
    assert rules_of.changed()
    assert in_use(run(rules_of.reload())) == first.version
    assert str(path) in (rules_of.error or "")
    assert not rules_of.changed()
    assert in_use(run(FolderRules(config, bytes, config.rulesets[0]).start())) == first.version
    path.write_bytes(second.data)
    assert rules_of.changed()
    assert (in_use(run(rules_of.reload())), rules_of.error) == (second.version, None)
    third = lookup_of(tmp_path / "third.vlookup", "user", "user:nocase", [("et",)], created=1_800_000_000_000_000)
    versions = Versions(installed / "users", ".vlookup", current=path.name)
    versions.folder.mkdir()
    versions.path(1, third.version).write_bytes(third.data)
    versions.switch(versions.path(1, third.version))
    assert in_use(run(rules_of.reload())) == third.version


@pytest.mark.parametrize("fault", ["no room", "damaged", "being written"])
def test_a_lookup_that_cannot_be_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """At a start without a copy of it the rules that ask it do not run and the others do, also where the file is whole
    by the time the rules are compiled; the reason is said, and once it can be copied they run."""
    path, rules = tmp_path / "own" / "users.vlookup", tmp_path / "rules"
    path.parent.mkdir()
    rule(rules, "alpha")
    (rules / "asking.yml").write_text(ASKING)
    whole = lookup_of(path, "user", "user:nocase", [(f"it{number}",) for number in range(3000)]).data
    config = Config(
        agent=AgentSettings(data_dir=tmp_path / "data"), rules=RuleSettings((rules,), lookups=(path.parent,))
    )
    rules_of = FolderRules(config, bytes, config.rulesets[0])
    compiler = vedette.runtime.rulesets.rules.compiler

    async def whole_by_then(module: str, *arguments: str, sample: bytes) -> child.Ended:
        path.write_bytes(whole)
        return await compiler(module, *arguments, sample=sample)

    with monkeypatch.context() as patch:
        if fault == "no room":
            patch.setattr("vedette.lookup.installed.RESERVE", 1 << 60)
        elif fault == "damaged":
            path.write_bytes(whole[:-100] + bytes(100))
        else:
            path.write_bytes(whole[:-100])
            patch.setattr("vedette.runtime.rulesets.rules.compiler", whole_by_then)
        loaded = run(rules_of.start())
    assert [found.title for found in loaded.engine.plan.rules] == ["Marker alpha"]
    assert "users" in (rules_of.error or "")
    path.write_bytes(whole)
    assert rules_of.changed()
    reloaded = run(rules_of.reload())
    assert reloaded is not None
    assert (len(reloaded.engine.plan.rules), rules_of.error) == (2, None)


def test_a_damaged_cache_is_built_anew(tmp_path: Path, folder: Path) -> None:
    """What lies damaged in the cache is not run and not in the way."""
    run(of_folder(tmp_path).start())
    (built,) = (tmp_path / "data" / "cache").iterdir()
    built.write_bytes(built.read_bytes()[:100])
    assert words(run(of_folder(tmp_path).start()).engine) == {"alpha"}
    assert built.stat().st_size > 100


def test_the_cache_is_bounded(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many sets only the newest are kept."""
    monkeypatch.setattr(vedette.runtime.rulesets.rules, "KEEP", 2)
    rules = of_folder(tmp_path)
    run(rules.start())
    cache = tmp_path / "data" / "cache"
    first = {path.name for path in cache.iterdir()}
    for number in (2, 3):
        rule(folder, f"word{number}", number)
        run(rules.reload())
    left = {path.name for path in cache.iterdir()}
    assert len(left) == 2
    assert not left & first


# --- bundles


class Region:
    """Signs bundles of one rule."""

    def __init__(self, folder: Path) -> None:
        self.public = keygen(folder / "key.pem")
        self.key = load_key(folder / "key.pem")

    def bundle(self, version: int, word: str, **changes: Any) -> bytes:
        artifact = Artifact.of(compile_rules(text=RULE.format(word=word, number=version)))
        test = [f"6a1f0000-0000-4000-8000-{version:012}", True, word.encode(), "text", "", "test:1"]
        values: dict[str, Any] = {
            "name": "demo",
            "version": version,
            "created": NOW,
            "expires": NOW + DAY,
            "plan": artifact.plan,
            "databases": artifact.databases,
            "sources": {"a.yml": b"title: a\n"},
            "rules": [],
            "tests": [test],
            "hyperscan_version": artifact.library,
        }
        return sign(build(**{**values, **changes}), self.key, "default", "stable")


@pytest.fixture
def region(tmp_path: Path) -> Region:
    return Region(tmp_path)


def of_bundles(tmp_path: Path, region: Region, file: bytes | None = None) -> BundledRules:
    config = Config(
        agent=AgentSettings(data_dir=tmp_path / "data"), bundles=BundleSettings(trusted_keys=(region.public,))
    )
    if file is not None:
        (tmp_path / "given.vbundle").write_bytes(file)
        config = replace(config, bundles=replace(config.bundles, file=tmp_path / "given.vbundle"))
    return BundledRules(config, bytes, config.rulesets[0])


def bundle_and_words(loaded: Loaded) -> tuple[str | None, set[str]]:
    return loaded.bundle, words(loaded.engine)


def test_no_bundle_yet(tmp_path: Path, region: Region) -> None:
    """An agent that waits for its first bundle runs without rules."""
    assert bundle_and_words(run(of_bundles(tmp_path, region).start())) == (None, set())


def test_the_given_file_and_what_follows(tmp_path: Path, region: Region) -> None:
    """The file given is installed at start; a newer one that arrived stays installed when the agent starts again."""
    first, second = region.bundle(1, "alpha"), region.bundle(2, "beta")
    rules = of_bundles(tmp_path, region, first)
    assert bundle_and_words(run(rules.start())) == ("demo-1", {"alpha"})
    assert bundle_and_words(run(rules.install(second))) == ("demo-2", {"beta"})
    again = of_bundles(tmp_path, region, first)
    assert bundle_and_words(run(again.start())) == ("demo-2", {"beta"})
    assert (again.error, again.bundles.refused) == (None, None)


def test_a_bundle_that_does_not_work(tmp_path: Path, region: Region) -> None:
    """A failing self-test, a plan or database that does not load, a foreign key or missing bytes: refused with the
    reason, and the last good one goes on, also at the next start."""
    rules = of_bundles(tmp_path, region, region.bundle(1, "alpha"))
    run(rules.start())
    (tmp_path / "other").mkdir()
    test = ["6a1f0000-0000-4000-8000-000000000002", True, b"other", "text", "", "t.yml:3"]
    offers = {
        r"self-test.*t\.yml:3": region.bundle(2, "beta", tests=[test]),
        "not a plan": region.bundle(2, "beta", plan=b"no plan"),
        "database cannot be loaded": region.bundle(2, "beta", databases={"prefilter": b"no database"}),
        "signed by key": Region(tmp_path / "other").bundle(2, "beta"),
        "not the [0-9]+ that were signed": region.bundle(2, "beta")[:-50],
    }
    for says, offered in offers.items():
        with pytest.raises(BundleRefused, match=says):
            run(rules.install(offered))
        assert re.search(says, rules.error or "")
    assert bundle_and_words(run(of_bundles(tmp_path, region).start())) == ("demo-1", {"alpha"})


def test_databases_of_another_library(tmp_path: Path, region: Region) -> None:
    """A bundle made with another Hyperscan is compiled here from its plan."""
    bundle = region.bundle(1, "alpha", databases={"prefilter": b"other"}, hyperscan_version="vectorscan 9.9.9")
    assert bundle_and_words(run(of_bundles(tmp_path, region, bundle).start())) == ("demo-1", {"alpha"})


def test_a_damaged_installed_bundle(tmp_path: Path, region: Region) -> None:
    """When the current one cannot be read the one before runs and the reason is told; the same one again repairs it."""
    second = region.bundle(2, "beta")
    rules = of_bundles(tmp_path, region, region.bundle(1, "alpha"))
    run(rules.start())
    run(rules.install(second))
    (installed,) = (tmp_path / "data" / "bundles").glob("2-*.vbundle")
    installed.write_bytes(b"damaged")
    again = of_bundles(tmp_path, region)
    assert bundle_and_words(run(again.start())) == ("demo-1", {"alpha"})
    assert again.bundles.refused
    assert bundle_and_words(run(again.install(second))) == ("demo-2", {"beta"})
    assert again.error is None
    assert again.bundles.refused is None


def hungry(leaves: int) -> dict[str, Any]:
    """A plan of one rule that asks so much, in place of a bundle's own."""
    many = tuple(Predicate("f", Op.CONTAINS, f"value{i}") for i in range(leaves))
    one = Compiled("id", "t", "low", (), LogSource(), (), Or(tuple(map(Leaf, range(leaves)))), "d", "p", 1)
    plan = Plan(many, (one,), (None,))
    return {"plan": plan.to_bytes(), "databases": {}, "hyperscan_version": "vectorscan 9.9.9"}


def test_a_trial_that_would_take_the_agent_with_it(
    tmp_path: Path, region: Region, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signed bundle whose dry run takes too long or too much memory, or whose plan is beyond the bounds, is refused
    by a subprocess before the agent loads anything of it; the one before runs on."""
    rules = of_bundles(tmp_path, region, region.bundle(1, "alpha"))
    run(rules.start())
    for says, bound, value, changes in (
        ("took longer than 0.05 s", "DRY_RUN_SECONDS", 0.05, {}),
        ("needs more than|MemoryError|SIG|memory", "DRY_RUN_BYTES", 110 << 20, hungry(19_000)),
        ("not a plan", "DRY_RUN_SECONDS", validate.DRY_RUN_SECONDS, hungry(20_001)),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(validate, bound, value)
            patch.setattr(bundled, "validate", None)  # the agent's own
            with pytest.raises(BundleRefused, match=says):
                run(rules.install(region.bundle(2, "beta", **changes)))
    assert bundle_and_words(run(of_bundles(tmp_path, region).start())) == ("demo-1", {"alpha"})


def test_a_trial_that_is_killed(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run that a signal ends, as the kernel or a crash of the pattern library would, is a refusal naming it."""
    monkeypatch.setattr(child, "_START", "import os; os.abort()")
    with pytest.raises(ValueError, match="its dry run was killed by SIGABRT"):
        validate.dry_run(region.bundle(1, "alpha"))


# --- literals chosen anew

HOT = """\
title: Marker zeta
id: 6a1f0000-0000-4000-8000-000000000099
logsource: {product: linux}
detection:
    s: {message|contains|all: [everywhereinthis, zeta]}
    condition: s
level: low
"""
TRAFFIC = b"everywhereinthis line, as in all\n" * 4000


def literals(loaded: Loaded | None) -> set[bytes]:
    assert loaded is not None
    (chosen,) = loaded.engine.plan.literals
    return set(chosen or ())


def test_literals_of_a_folder_are_chosen_anew(tmp_path: Path) -> None:
    """By the newest traffic, for the same plan; kept for the next start; when nothing is gained nothing changes."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "hot.yml").write_text(HOT)
    traffic = [b""]
    config = Config(agent=AgentSettings(data_dir=tmp_path / "data"), rules=RuleSettings((tmp_path / "rules",)))
    rules = FolderRules(config, lambda: traffic[0], config.rulesets[0])
    loaded = run(rules.start())
    assert literals(loaded) == {b"everywhereinthis"}
    assert run(rules.retune(loaded)) is None  # no traffic to tell
    traffic[0] = TRAFFIC
    chosen = run(rules.retune(loaded))
    assert literals(chosen) == {b"zeta"}
    assert chosen is not None
    assert chosen.engine.plan.digest == loaded.engine.plan.digest
    assert words(chosen.engine, "everywhereinthis zeta") == {"zeta"} != words(chosen.engine, "zeta")
    assert run(rules.retune(chosen)) is None
    assert not rules.changed()
    assert literals(run(FolderRules(config, lambda: traffic[0], config.rulesets[0]).start())) == {b"zeta"}


def test_literals_of_a_bundle_are_chosen_anew(tmp_path: Path, region: Region) -> None:
    """They are kept beside the bundle, which stays as it is signed, and go when another is installed."""
    artifact = Artifact.of(compile_rules(text=HOT))
    signed = region.bundle(1, "zeta", plan=artifact.plan, databases=artifact.databases, tests=[])
    rules = of_bundles(tmp_path, region, signed)
    rules._sample = lambda: TRAFFIC
    loaded = run(rules.start())
    assert literals(loaded) == {b"everywhereinthis"}
    assert literals(run(rules.retune(loaded))) == {b"zeta"}
    again = run(of_bundles(tmp_path, region).start())
    assert (literals(again), again.bundle) == ({b"zeta"}, "demo-1")
    (kept,) = (tmp_path / "data" / "cache").glob("chosen-*")
    other = Artifact.of(compile_rules(text=HOT.replace("zeta", "beta")))
    kept.write_bytes(other.to_bytes())
    assert literals(run(of_bundles(tmp_path, region).start())) == {b"everywhereinthis"}  # not this bundle's plan
    kept.write_bytes(b"damaged")
    assert literals(run(of_bundles(tmp_path, region).start())) == {b"everywhereinthis"}
    assert bundle_and_words(run(rules.install(region.bundle(2, "beta")))) == ("demo-2", {"beta"})


def test_a_choice_that_fails_leaves_what_runs(tmp_path: Path, folder: Path) -> None:
    """A folder that cannot be written: told in the log, no exception."""
    rules = of_folder(tmp_path, TRAFFIC)
    loaded = run(rules.start())
    rules._cache = folder / "alpha.yml" / "no-folder"
    assert run(rules.retune(loaded)) is None


def test_when_a_choice_is_due(tmp_path: Path, folder: Path) -> None:
    """An hour after the last look, when there was traffic and much of it candidates; another engine begins anew."""
    rules = of_folder(tmp_path)
    engine = run(rules.start()).engine

    def judged(events: int, candidates: int) -> None:
        engine.tally.events += events
        engine.tally.candidates += candidates

    assert not rules.retune_due(engine, 0)
    judged(100_000, 50_000)
    assert not rules.retune_due(engine, RETUNE_SECONDS - 1)
    assert rules.retune_due(engine, RETUNE_SECONDS)
    assert not rules.retune_due(engine, RETUNE_SECONDS + 1)
    judged(100_000, 1000)
    assert not rules.retune_due(engine, 2 * RETUNE_SECONDS)
    judged(100, 100)
    assert not rules.retune_due(engine, 3 * RETUNE_SECONDS)
    judged(100_000, 50_000)
    assert not rules.retune_due(Engine(engine.plan), 4 * RETUNE_SECONDS)


# --- a disk that is full for a while


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Not a byte fits while this lasts."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    try:
        yield
    finally:
        filler.unlink()


def test_a_folder_that_the_disk_does_not_take(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that fails at a start for want of space says nothing of the rules: it is tried again by itself, but not
    at every look."""
    with tmpfs(tmp_path / "data", "4m") as disk:
        run(of_folder(tmp_path).start())
        rule(folder, "beta", 2)
        rules = of_folder(tmp_path)
        with filled(disk):
            assert words(run(rules.start()).engine) == {"alpha"}
            assert "No space left" in (rules.error or "")
            assert rules.changed()
            with pytest.raises(OSError, match="No space left"):
                run(rules.reload())
            assert not rules.changed()
        monkeypatch.setattr(vedette.runtime.rulesets.rules, "AGAIN_SECONDS", 0.0)
        assert rules.changed()
        assert words(run(rules.reload()).engine) == {"alpha", "beta"}
        assert rules.error is None
        assert not rules.changed()


def test_a_bundle_that_the_disk_does_not_take(tmp_path: Path, region: Region) -> None:
    """The given file, and one that arrived, are tried again when the disk was full."""
    with tmpfs(tmp_path / "data", "4m") as disk:
        rules = of_bundles(tmp_path, region, region.bundle(1, "alpha"))
        with filled(disk):
            assert bundle_and_words(run(rules.start())) == (None, set())
            assert "No space left" in (rules.error or "")
        assert rules.changed()
        assert bundle_and_words(run(rules.reload())) == ("demo-1", {"alpha"})
        assert (rules.error, rules.changed()) == (None, False)
        with filled(disk), pytest.raises(OSError, match="No space left"):
            run(rules.install(region.bundle(2, "beta")))
        rules._tried = None, 0.0  # long ago
        assert rules.changed()
        assert bundle_and_words(run(rules.reload())) == ("demo-2", {"beta"})
        assert (rules.error, rules.changed()) == (None, False)
