"""Rule sets that are merged: one that fails or does not fit leaves the others as they are."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.lookup.tables import lookup_of
from tests.plan.test_merge import TWICE, rule
from tests.runtime.test_rules import HOT, TRAFFIC
from vedette.config.settings import AgentSettings, Config, RulesetSettings, RuleSettings
from vedette.decode.decoder import record
from vedette.engine.match import Context
from vedette.model.event import Chunk, LogSource
from vedette.plan.merge import merge
from vedette.plan.plan import Plan
from vedette.rules.build import empty, from_rules, from_text
from vedette.runtime.rulesets.deadrules import Dead
from vedette.runtime.rulesets.rules import FolderRules, Loaded
from vedette.runtime.rulesets.sets import RuleSets
from vedette.state.state import State
from vedette.stream.reader import Event
from vedette.system import child


def folder(path: Path, text: str) -> Path:
    path.mkdir(exist_ok=True)
    (path / "rule.yml").write_text(text)
    return path


def configured(tmp_path: Path, *names: str) -> Config:
    return Config(
        agent=AgentSettings(id="a", data_dir=tmp_path / "data"),
        rules=RuleSettings((tmp_path / "default",)),
        ruleset=tuple(RulesetSettings(name, (tmp_path / name,)) for name in names),
    )


def titles(loaded: Loaded, line: bytes, codec: str = "text") -> list[str]:
    matches = loaded.engine.evaluate(Chunk("in", codec, 1, line), Context(logsource=LogSource("linux")))
    return [loaded.engine.plan.rules[match.rule].title for match in matches]


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    folder(tmp_path / "default", rule("alpha"))
    folder(tmp_path / "site", rule("beta", 2))
    return tmp_path


def test_a_compiler_that_is_killed_at_the_start(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Says nothing of the rules: no event is evaluated by none, and the next start compiles them."""
    with monkeypatch.context() as killed:
        killed.setattr(child, "_START", "import os; os.kill(os.getpid(), 9)")
        with pytest.raises(OSError, match="killed by signal 9: for want of memory"):
            asyncio.run(RuleSets(configured(folders), bytes).start())
    assert titles(asyncio.run(RuleSets(configured(folders), bytes).start()), b"alpha") == ["Has alpha"]


def test_one_set_alone_is_not_merged(folders: Path) -> None:
    """The configuration of a single set loads what it did, and its alerts name its bundle alone."""
    loaded = asyncio.run(RuleSets(configured(folders), bytes).start())
    assert loaded.together is None
    assert loaded.credit is None
    assert list((folders / "data" / "cache").glob("merged-*")) == []


def test_a_set_that_cannot_be_built_is_left_out(folders: Path) -> None:
    """A set without a rule that runs does not keep the others from starting; it is there once it can be built."""
    folder(folders / "site", "title: [")
    sets = RuleSets(configured(folders, "site"), bytes)
    loaded = asyncio.run(sets.start())
    assert titles(loaded, b"alpha beta") == ["Has alpha"]
    assert [bool(row["error"]) for row in sets.status(loaded, {}, Dead([], {}))] == [False, True]
    folder(folders / "site", rule("beta", 2))

    async def mended() -> Loaded:
        site = sets.members["site"]
        assert site.changed()
        found = await site.reload()
        assert found is not None
        return await sets.take("site", found)

    loaded = asyncio.run(mended())
    assert titles(loaded, b"alpha beta") == ["Has alpha", "Has beta"]
    assert [row["error"] for row in sets.status(loaded, {}, Dead([], {}))] == [None, None]
    assert loaded.credit == {one.id: "site" for one in loaded.engine.plan.rules if one.title == "Has beta"}


def test_a_merged_set_is_kept_compiled(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start takes what was compiled of all sets together, without a compiler."""
    config = configured(folders, "site")
    first = asyncio.run(RuleSets(config, bytes).start())

    async def none(*args: Any, **options: Any) -> None:
        raise AssertionError("nothing is compiled")

    monkeypatch.setattr("vedette.runtime.rulesets.merged.compiler", none)
    again = asyncio.run(RuleSets(config, bytes).start())
    assert again.engine.plan.digest == first.engine.plan.digest
    assert titles(again, b"alpha beta") == ["Has alpha", "Has beta"]


def test_literals_of_merged_sets_are_chosen_anew(folders: Path) -> None:
    """By the newest traffic, for all sets together; what each alert is credited to stays; kept for the next start."""
    folder(folders / "default", HOT)
    config = configured(folders, "site")
    traffic = [b""]
    sets = RuleSets(config, lambda: traffic[0])
    loaded = asyncio.run(sets.start())
    traffic[0] = TRAFFIC
    chosen = asyncio.run(sets.retune(loaded))
    assert chosen is not None

    def literals(loaded: Loaded) -> dict[str, tuple[bytes, ...]]:
        plan = loaded.engine.plan
        return {one.title: tuple(found or ()) for one, found in zip(plan.rules, plan.literals, strict=True)}

    (hot,) = set(literals(loaded)) - {"Has beta"}
    assert (literals(loaded)[hot], literals(chosen)[hot]) == ((b"everywhereinthis",), (b"zeta",))
    assert literals(chosen)["Has beta"] == literals(loaded)["Has beta"]
    assert chosen.engine.plan.digest == loaded.engine.plan.digest
    assert (chosen.together, chosen.credit) == (loaded.together, loaded.credit)
    assert asyncio.run(sets.retune(chosen)) is None
    again = asyncio.run(RuleSets(config, bytes).start())
    assert literals(again) == literals(chosen)


def test_a_set_that_does_not_fit_is_refused_as_it_loads(folders: Path) -> None:
    """What cannot be merged with the other sets is refused with the reason before anything changes."""

    def fits(plan: Plan) -> None:
        raise ValueError("the rule set site cannot be merged: its lookup assets differs")

    config = configured(folders, "site")
    site = FolderRules(config, bytes, config.rulesets[1], fits)
    with pytest.raises(ValueError, match="its lookup assets differs"):
        asyncio.run(site.start())
    assert site.error is not None
    assert "its lookup assets differs" in site.error


STATED = """\
-- title: Programs by the minute
-- id: 6a1f0000-0000-4000-8000-000000000055
INSERT INTO alerts SELECT program, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time),
  INTERVAL '1' MINUTE)) GROUP BY program, window_start, window_end;
"""


def stated() -> Plan:
    rules = empty()
    rules.front_ends[".sql"].add(STATED, "stated.sql")
    return from_rules(rules)


def state_of(state: State) -> tuple[dict[Any, Any], bytes]:
    """The groups of correlations, and the tables of statements, as bytes."""
    groups = state.correlator.groups
    state.statements.touch()
    return {groups.values_of(key): value for key, value in groups.table.items()}, state.statements.delta()


def test_the_state_of_the_others_is_the_same_byte_for_byte() -> None:
    """A set that comes, changes and goes leaves the correlations and statements of another as they were."""
    own, site = from_text(rule("alpha") + TWICE), stated()
    other = TWICE.replace("0099", "0098").replace("000000000001", "000000000010")
    state = State(merge({"default": own, "site": site}).plan, log_id="l")
    ((scan,),) = state.statements.network.scans.values()
    for number in range(50):
        event = record(b"<13>Nov 20 10:00:00 web1 app%d: alpha user=u%d" % (number, number), "syslog")
        grouped = record(b'{"user": "u%d", "message": "alpha"}' % number, "json")
        state.match([own.rules[0].id], grouped, 1, 1_000_000 * number, number * 10, 10)
        row = Event(event, number * 10, input="in", host=lambda: "web1", time=lambda n=number: 1_000_000 * n)
        state.statements.feed(state.statements.read(scan.rule, row))
    assert list(state.statements.take()) == []
    groups, tables = before = state_of(state)
    assert len(groups) == 50
    assert all(type(group) is bytes for group in groups.values())
    assert len(tables) > 500
    for words in (("beta",), ("gamma", "delta"), ()):
        plans = {"default": own, "site": site}
        if words:
            text = "---\n".join(rule(word, 10 + i) for i, word in enumerate(words))
            plans["region"] = from_text(text + other)
        state.switch(merge(plans).plan)
        assert len(state.correlator.nodes) == 1 + bool(words)
        assert {*state.started_empty} <= {"6a1f0000-0000-4000-8000-000000000098"}  # what changed itself
        assert state_of(state) == before


ASKING = rule("marked", 7).replace("    condition: keywords", "    known:\n        user|expand: '%users%'\n"
    "    condition: keywords and known")  # fmt: skip


def deliver(config: Config, number: int, *users: str) -> str:
    """Put a version of the lookup ``users`` where delivered ones are; returns it."""
    folder = config.agent.lookup_dir / "users"
    folder.mkdir(parents=True, exist_ok=True)
    path, link = folder / f"{number}.vlookup", folder / "users.vlookup"
    found = lookup_of(path, "user", "user", [(user,) for user in users], created=number, name="users")
    link.unlink(missing_ok=True)
    link.symlink_to(path.name)
    return found.version


def test_a_set_that_changes_between_a_lookup_and_its_switch(folders: Path) -> None:
    """A set that loads when a new version of a lookup is installed, and not yet in use, is no conflict with the sets
    that loaded before: all go on with the new version, and no error stays."""
    config = configured(folders, "site")
    deliver(config, 1, "alice")
    folder(folders / "default", ASKING)
    folder(folders / "site", ASKING.replace("000000000007", "000000000008"))
    sets = RuleSets(config, bytes)

    async def changed() -> Loaded:
        await sets.start()
        site, version = sets.members["site"], deliver(config, 2, "alice", "bob")
        folder(folders / "site", ASKING.replace("000000000007", "000000000008").replace("Has", "Had"))
        found = await site.reload()
        assert found is not None
        loaded = await sets.take("site", found)
        assert loaded.engine.plan.lookups["users"].version == version
        return loaded

    loaded = asyncio.run(changed())
    line = b"<38>Nov 20 10:00:00 web1 sshd[1]: Accepted password for bob from 192.0.2.1 port 22 ssh2 marked"
    assert titles(loaded, line, "syslog") == ["Has marked", "Had marked"]
    assert sets.error is None
