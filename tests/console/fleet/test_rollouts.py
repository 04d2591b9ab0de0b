"""Orders and proposals by a real controller, `vedette region steer`, over a real mosquitto."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.console.fleet.kit import ADMIN, VIENNA, VIEWER, Agents, Region
from tests.e2e.agent import Process, vedette
from tests.fleet.kit import FLEET
from tests.waits import eventually, pauses
from vedette.bundle.seal import key_text
from vedette.fleet.certificates import key_pem
from vedette.fleet.documents import Desired, wanted
from vedette.region import fleetfile
from vedette.system.wallclock import utc_now
from vedette_console.fleet import propose
from vedette_console.fleet.models import Proposal, Proposed, RuleFile
from vedette_console.fleet.propose import put_bundle
from vedette_console.fleet.service import Fleet
from vedette_console.web import Problem

pytestmark = pytest.mark.peer
SITES = {"vienna-1": "vienna", "vienna-2": "vienna", "linz-1": "linz"}
RULE = """title: {title}
id: 5c1f4f0e-3a52-4d09-9f3b-0f6d7c2e8a0{n}
logsource: {{product: linux}}
detection:
    k: [{word}]
    condition: k
level: high
"""
TOML = """# what the plants run
[[ring]]
name = "canary"
agents = 1
soak = "2s"

[[ring]]
name = "all"
percent = 100
soak = "1s"

[gates]
baseline = "1s"
silence = "60s"

[[operator]]
name = "otto"
key = "{key}"
roles = ["viewer", "analyst", "operator"]
expires = "2099-01-01T00:00:00Z"

[[group]]
name = "vienna"
match = "site = vienna"
bundle = "bundles/rules-1.vbundle"  # the first

[[group]]
name = "rest"
match = "all"
"""


class Steered(Region):
    """With rules, a ``fleet.toml`` and a controller."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.rules, self.toml = folder / "rules", folder / "fleet.toml"
        (folder / "bundles").mkdir()
        self.rules.mkdir()
        (self.rules / "needle.yml").write_text(RULE.format(title="Needle", n=1, word="needle"))
        (self.rules / "needle.test.yml").write_text("- match: a needle\n")
        self.author = folder / "author.pem"
        vedette("bundle", "keygen", self.author)
        first = folder / "bundles" / "rules-1.vbundle"
        vedette("bundle", "build", self.rules, "-o", first, "--version", 1)
        vedette("bundle", "sign", first, "--key", self.author, "--fleet", FLEET)
        self.toml.write_text(TOML.format(key=key_text(self.key.public_key())))
        self.put_in_force()
        self.controller = Process(
            folder / "steer.log", "region", "steer", folder / "trust", "--broker", self.broker.url
        )

    def put_in_force(self) -> Desired:
        repository = self.documents.repository
        document = fleetfile.read(self.toml, FLEET)
        after = fleetfile.next_desired(document, FLEET, repository.desired(), repository.rollout(), utc_now())
        operators = fleetfile.next_operators(document, FLEET, repository.operators())
        after = after or repository.desired()
        assert after is not None
        repository.stage_desired(after, document.files, operators)
        for key in self.documents.operators[:2]:
            repository.sign(key)
        repository.commit()
        return after

    def signers(self, count: int) -> tuple[Path, ...]:
        paths = []
        for number, key in enumerate(self.documents.operators[:count]):
            path = self.folder / f"signer-{number}.pem"
            path.write_bytes(key_pem(key))
            path.chmod(0o600)
            paths.append(path)
        return tuple(paths)

    def console_settings(self, **more: Any) -> Any:
        steering = {
            "fleet_file": self.toml,
            "author_key": self.author,
            "signer_keys": self.signers(2),
            "rules": (self.rules,),
        }
        return super().console_settings(**{**steering, **more})


@pytest.fixture
def region(tmp_path: Path) -> Iterator[Steered]:
    region = Steered(tmp_path)
    region.broker.start()
    yield region
    if region.controller.process is not None:
        region.controller.stop()
    region.broker.kill()


@asynccontextmanager
async def at_work(region: Steered, **more: Any) -> AsyncIterator[tuple[Fleet, Agents]]:
    """With agents that run what the documents say, as they report it."""

    async def obey() -> None:
        repository = region.documents.repository
        while True:
            desired, rollout = await asyncio.to_thread(lambda: (repository.desired(), repository.rollout()))
            assert desired is not None
            for name, site in SITES.items():
                own = wanted(desired, rollout, name, {"id": name, "site": site})
                target = own.bundles.get("default") if own is not None else None
                bundles = {"default": {"sha256": target.sha256, "version": target.version}} if target else {}
                serials = {"desired_serial": desired.serial, "rollout_serial": rollout.serial if rollout else None}
                with suppress(OSError):
                    await agents.heartbeat(name, actual={**serials, "bundles": bundles})
            await asyncio.sleep(0.3)

    async with Agents(region.settings, region.authority, SITES).running() as agents:
        task = asyncio.create_task(obey())
        try:
            async with region.console(heard=3, **more) as fleet:
                yield fleet, agents
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def state(fleet: Fleet, change: str, *states: str) -> Any:
    for pause in pauses():
        page = fleet.rollouts.rollout(ADMIN, change)
        if page.row.state in states and page.controller.state == "reports":
            return page
        await asyncio.sleep(pause)
    raise AssertionError(f"{page.row.state}, not {states}: {page.model_dump_json(indent=1)}")


def proposal(**more: Any) -> Proposal:
    rule = RuleFile(path="hay.yml", text=RULE.format(title="Hay", n=2, word="hay"))
    tests = RuleFile(path="hay.test.yml", text="- match: hay\n- no_match: straw\n")
    return Proposal(**{"rules": [rule, tests], "group": "vienna", "reason": "case 17", **more})


async def test_from_a_rule_to_all_agents(region: Steered) -> None:
    """A proposal is built on the present rules, signed, desired, goes to the canary, is paused, resumed and done; every
    step is in the fleet's record; who may act at one site may steer a group of that site alone."""
    # Over 3 s: a roll-out goes through its rings, each of which soaks for a second or two.
    region.controller.start()
    async with at_work(region) as (fleet, _):
        proposed = await fleet.proposals.propose(VIENNA, proposal())
        proposed = await finished(fleet, proposed)
        assert (proposed.state, proposed.version, proposed.problems, proposed.published) == ("applied", 2, [], True), (
            proposed
        )
        assert [(change.group, change.what) for change in proposed.diff] == [("vienna", "bundles default")]
        assert 'bundle = "bundles/rules-2.vbundle"  # the first' in region.toml.read_text()
        assert "2 rules" in proposed.summary
        change = proposed.changes[0]
        page = await state(fleet, change, "rolling")
        assert page.row.may == ["pause", "abort"]
        assert [ring.state for ring in page.rings] == ["now", "later"]
        assert (await fleet.rollouts.order(VIENNA, change, "pause", "wait <b>")).outcome.startswith("done")
        page = await state(fleet, change, "paused")
        assert page.row.may == ["resume", "abort"]
        assert any("wait <b> (console: vic)" in reason for reason in page.row.reasons)
        assert (await fleet.rollouts.order(ADMIN, change, "pause", "again")).outcome.startswith("nothing to do")
        assert (await fleet.rollouts.order(ADMIN, change[:6], "resume", "go on")).outcome.startswith("done")
        page = await state(fleet, change, "done")
        assert {event.event for event in page.events} >= {
            "rollout_ring",
            "rollout_paused",
            "rollout_resumed",
            "rollout_done",
        }
        for name in ("vienna-1", "vienna-2"):
            await eventually("it to run", partial(runs, fleet, name, 2))

        for who, command in ((VIEWER, "pause"), (VIEWER, "abort")):
            with pytest.raises(Problem) as refused:
                await fleet.rollouts.order(who, change, command, "x")
            assert refused.value.status == 403
        with pytest.raises(Problem) as refused:
            await fleet.proposals.propose(VIENNA, proposal(group="rest"))
        assert refused.value.status == 403
        assert [entry.id for entry in (fleet.proposals.listed(ADMIN)).items] == [proposed.id]


@pytest.mark.long
async def test_a_second_one_is_put_back(region: Steered) -> None:
    """While the first goes through its rings, the same rule is proposed again, and that is aborted."""
    region.controller.start()
    async with at_work(region) as (fleet, _):
        proposed = await finished(fleet, await fleet.proposals.propose(VIENNA, proposal()))
        await state(fleet, proposed.changes[0], "rolling", "done")
        again = await finished(fleet, await fleet.proposals.propose(ADMIN, proposal()))
        assert (again.state, again.version) == ("applied", 3)
        assert (await fleet.rollouts.order(ADMIN, again.changes[0], "abort", "no")).outcome.startswith("done")
        await state(fleet, again.changes[0], "aborted")
        assert [entry.id for entry in (fleet.proposals.listed(ADMIN)).items] == [again.id, proposed.id]


def runs(fleet: Fleet, agent: str, version: int) -> bool:
    beat = fleet.live.beat(FLEET, agent)
    actual = beat.actual if beat is not None else None
    return actual is not None and actual["bundles"].get("default", {}).get("version") == version


async def finished(fleet: Fleet, proposed: Proposed) -> Proposed:
    for pause in pauses():
        if proposed.state != "building":
            break
        await asyncio.sleep(pause)
        proposed = fleet.proposals.proposal(ADMIN, proposed.id)
    return proposed


async def test_what_is_refused(region: Steered) -> None:
    """With a rule that does not run, a test event that fails, or a file of other changes nothing moves."""
    before = region.toml.read_text()
    async with at_work(region) as (fleet, _):
        bad = RuleFile(
            path="bad.yml", text="title: x\nlogsource: {product: linux}\ndetection: {k: {a|frob: 1}, condition: k}\n"
        )
        proposed = await finished(fleet, await fleet.proposals.propose(ADMIN, proposal(rules=[bad])))
        assert (proposed.state, proposed.problems[0].path, proposed.problems[0].line) == ("refused", "bad.yml", 3), (
            proposed
        )
        fails = RuleFile(path="needle.test.yml", text="- match: hay\n")
        proposed = await finished(fleet, await fleet.proposals.propose(ADMIN, proposal(rules=[fails])))
        assert proposed.state == "refused"
        assert any("should match" in problem.message for problem in proposed.problems), proposed
        region.toml.write_text(before.replace("agents = 1", "agents = 2"))
        proposed = await finished(fleet, await fleet.proposals.propose(ADMIN, proposal()))
        assert proposed.state == "refused"
        assert "rings or gates" in proposed.problems[-1].message
        assert "rules-2" not in region.toml.read_text()
        region.toml.write_text(before)
        for path in ("../x.vbundle", "/etc/passwd", "bundles/none.vbundle"):
            proposed = await finished(fleet, await fleet.proposals.propose(ADMIN, proposal(rules=[], bundle=path)))
            assert proposed.state == "refused", path
        assert not region.documents.repository.signatures()


async def test_a_bundle_that_is_there_stays(region: Steered) -> None:
    """A proposal has a file of its own, which goes when the proposal is refused; none is written over."""
    before, bundles = region.toml.read_text(), region.folder / "bundles"
    theirs = bundles / "rules-2.vbundle"
    theirs.write_bytes(b"an admin's, not planned yet")
    region.toml.write_text(before.replace("agents = 1", "agents = 2"))
    async with at_work(region) as (fleet, _):
        refused = await finished(fleet, await fleet.proposals.propose(VIENNA, proposal()))
        assert (refused.state, "rings or gates" in refused.problems[-1].message) == ("refused", True), refused
        assert sorted(path.name for path in bundles.iterdir()) == ["rules-1.vbundle", "rules-2.vbundle"]
        region.toml.write_text(before)
        done = await finished(fleet, await fleet.proposals.propose(VIENNA, proposal()))
        assert (done.state, done.bundle) == ("applied", "bundles/rules-3.vbundle"), done
        assert theirs.read_bytes() == b"an admin's, not planned yet"


async def test_an_admin_saves_meanwhile(region: Steered, monkeypatch: pytest.MonkeyPatch) -> None:
    """What somebody saves in fleet.toml while a proposal is checked stays, and so does the file when staging fails; the
    proposal is refused, nothing is staged, and its bundle goes."""
    before, read = region.toml.read_text(), fleetfile.read
    theirs = before + "\n# until Tuesday\n"

    def saved(*of: Any) -> Any:
        region.toml.write_text(theirs)
        return read(*of)

    def full(*_: Any) -> None:
        raise OSError("the disk is full")

    async with at_work(region) as (fleet, _):
        for target, name, double, reason, left in (
            (propose.fleetfile, "read", saved, "fleet.toml was changed by somebody else meanwhile", theirs),
            (propose.Repository, "stage_desired", full, "the disk is full", before),
        ):
            region.toml.write_text(before)
            with monkeypatch.context() as patch:
                patch.setattr(target, name, double)
                refused = await finished(fleet, await fleet.proposals.propose(VIENNA, proposal()))
            assert (refused.state, reason in refused.problems[-1].message) == ("refused", True), refused
            assert region.toml.read_text() == left
            assert not region.documents.repository.signatures()
            assert [path.name for path in (region.folder / "bundles").iterdir()] == ["rules-1.vbundle"]


async def test_a_kill_at_any_step(region: Steered, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The next start says of a proposal what the documents say: in force, staged, or neither; that is then taken back,
    unless an admin has saved fleet.toml meanwhile."""
    before, disks = region.toml.read_text(), dict[str, Path]()

    def watched(target: Any, name: str) -> None:
        act = getattr(target, name)

        def acts(*of: Any, **more: Any) -> Any:
            result = act(*of, **more)
            if name not in disks:
                disks[name] = tmp_path / "disks" / name
                shutil.copytree(region.folder, disks[name], ignore=shutil.ignore_patterns("broker", "disks"))
            return result

        monkeypatch.setattr(target, name, acts)

    for target, names in (
        (propose, ("put_bundle", "_exchange")),
        (propose.Repository, ("stage_desired", "sign", "commit")),
    ):
        for name in names:
            watched(target, name)
    async with at_work(region) as (fleet, _):
        done = await finished(fleet, await fleet.proposals.propose(VIENNA, proposal()))
        assert done.state == "applied", done
    monkeypatch.undo()
    shutil.copytree(disks["_exchange"], tmp_path / "disks" / "edited")
    disks["edited"] = tmp_path / "disks" / "edited"
    edited = (disks["edited"] / "fleet.toml").read_text() + "# until Tuesday\n"
    (disks["edited"] / "fleet.toml").write_text(edited)
    states = dict[str, str]()
    for name, disk in disks.items():
        region.folder, region.toml = disk, disk / "fleet.toml"
        async with region.console() as fleet:
            (said,) = fleet.proposals.listed(ADMIN).items
        states[name] = said.state
        bundles = [path.name for path in (disk / "bundles").iterdir()]
        if said.state == "refused" and name != "edited":
            assert (region.toml.read_text(), bundles) == (before, ["rules-1.vbundle"]), name
        else:
            assert ("rules-2" in region.toml.read_text(), "rules-2.vbundle" in bundles) == (True, True), name
        if said.state != "refused":
            assert (said.diff, said.changes) == (done.diff, done.changes)
            sign = ["vedette fleet sign --key YOUR.pem"] * {"stage_desired": 2, "sign": 1}.get(name, 0)
            assert said.commands == [*sign, f"vedette fleet apply --broker {region.broker.url}"], name
        assert not [*disk.glob(".fleet.toml.*"), *disk.glob("work/proposals/*/rules")], name
    assert "has other changes" in said.problems[-1].message
    assert region.toml.read_text() == edited
    assert states == {
        "put_bundle": "refused", "_exchange": "refused", "stage_desired": "staged", "sign": "staged",
        "commit": "applied", "edited": "refused",
    }  # fmt: skip


async def test_slow_builds(region: Steered, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one user, also by a token and asked for at once, leave others a place; one that ends as nobody foresaw
    is refused with its reason, and keeps no place."""
    monkeypatch.setattr(propose, "OWN", 2)
    monkeypatch.setattr(propose, "WAIT_SECONDS", 0.0)
    slow = asyncio.Event()

    async def make(*_: Any) -> Proposed:
        await slow.wait()
        raise RuntimeError("out of luck")

    monkeypatch.setattr(propose.Proposals, "_make", make)
    script = replace(VIENNA, kind="token", label="ci")
    async with region.console() as fleet:
        asked = [fleet.proposals.propose(who, proposal()) for who in (VIENNA, script, VIENNA)]
        begun = await asyncio.gather(*asked, return_exceptions=True)
        (refused,) = [answer for answer in begun if isinstance(answer, Problem)]
        assert (refused.status, "2 of your proposals" in str(refused)) == (429, True)
        assert (await fleet.proposals.propose(ADMIN, proposal())).state == "building"
        slow.set()
        for proposed in begun:
            if isinstance(proposed, Proposed):
                done = await finished(fleet, proposed)
                assert (done.state, done.problems[-1].message) == ("refused", "out of luck")
        await fleet.proposals.propose(VIENNA, proposal())


def test_a_bundle_that_came_while_another_was_built(tmp_path: Path) -> None:
    path = tmp_path / "rules-2.vbundle"
    path.write_bytes(b"theirs")
    with pytest.raises(FileExistsError), ExitStack() as undo:
        put_bundle(path, b"mine", undo)
    assert path.read_bytes() == b"theirs"


async def test_keys_that_lack(region: Steered) -> None:
    """With one signer the documents wait for another; without the author's key the answer has every command."""
    async with at_work(region, signer_keys=region.signers(1)) as (fleet, _):
        done = await finished(fleet, await fleet.proposals.propose(ADMIN, proposal()))
        assert done.state == "staged"
        assert done.commands == [
            "vedette fleet sign --key YOUR.pem",
            f"vedette fleet apply --broker {region.broker.url}",
        ]
        page = fleet.rollouts.page(ADMIN)
        assert page.staged is not None
        assert page.staged.signatures[0].missing == 1
        again = await finished(fleet, await fleet.proposals.propose(ADMIN, proposal()))
        assert again.state == "refused"
        assert "wait for signatures" in again.problems[0].message
    region.documents.repository.discard()
    async with at_work(region, author_key=None) as (fleet, _):
        done = await finished(fleet, await fleet.proposals.propose(ADMIN, proposal()))
        assert done.state == "commands"
        assert "vedette bundle sign" in done.commands[0]
        assert Path(done.bundle).exists()
        assert 'bundle = "bundles/rules-' in done.commands[1]


@pytest.mark.long
async def test_orders_that_nobody_takes(region: Steered) -> None:
    """Without a controller an order waits, and is carried out when there is one; without a broker, with the wrong key
    or an expired one it is not given, and says why."""
    # Over 3 s: a controller begins, and commands build and sign the documents of two changes.
    async with at_work(region) as (fleet, _):
        (row,) = (fleet.rollouts.page(ADMIN)).items
        assert row.state == "waiting"
        assert (fleet.rollouts.page(ADMIN)).controller.state == "silent"
        assert (await fleet.rollouts.order(ADMIN, row.change, "pause", "early")).outcome == "waits"
        region.controller.start()
        await state(fleet, row.change, "paused")
        region.write_key(Ed25519PrivateKey.generate())
        with pytest.raises(Problem, match="not that of operator otto"):
            await fleet.rollouts.order(ADMIN, row.change, "resume", "x")
        region.write_key(region.key)
        region.toml.write_text(region.toml.read_text().replace("2099-01", "2020-01"))
        region.put_in_force()
        with pytest.raises(Problem, match="otto has expired"):
            await fleet.rollouts.order(ADMIN, row.change, "resume", "x")
        region.toml.write_text(region.toml.read_text().replace("2020-01", "2099-01"))
        region.broker.kill()
        await eventually("the outage", lambda: fleet.live.link().state == "away")
        page = fleet.rollouts.page(ADMIN)
        assert page.old
        assert page.link.state == "away"
        assert page.items[0].state == "paused"


def test_a_console_is_not_needed(region: Steered) -> None:
    """Its folder and record are the fleet's own: what it signed is there as any signer's."""
    rows = [orjson.loads(line) for line in (region.folder / "trust/audit.jsonl").read_bytes().splitlines()]
    assert {row["event"] for row in rows} >= {"fleet_created", "fleet_signed", "fleet_committed"}
