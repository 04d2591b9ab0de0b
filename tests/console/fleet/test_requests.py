"""Hunts, evidence and questions in the background, over a real mosquitto: silence, outages, cancels, forgeries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.console.fleet.kit import ADMIN, VIENNA, VIEWER, Agents, Region
from tests.fleet.asking import Authority
from tests.fleet.kit import FLEET, desired, group
from tests.region.anything import nested
from tests.waits import eventually, pauses
from vedette.fleet.audit import Audit
from vedette.fleet.replies import Part, pack, packed
from vedette.fleet.requests import CANCEL, Request
from vedette.region import requests
from vedette.region.evidence import Found
from vedette.system.wallclock import utc_now
from vedette_console.fleet import desk, questions
from vedette_console.fleet.models import RuleFile
from vedette_console.fleet.models_asked import Action, EvidenceOrder, HuntOrder, Question
from vedette_console.fleet.notes import Note
from vedette_console.fleet.service import Fleet
from vedette_console.web import Problem

pytestmark = pytest.mark.peer
SITES = {"vienna-1": "vienna", "vienna-2": "vienna", "linz-1": "linz"}
RULE = """
title: Needle
id: 5c1f4f0e-3a52-4d09-9f3b-0f6d7c2e8a01
logsource: {product: linux}
detection: {k: [needle], condition: k}
level: high
"""
RULES = [RuleFile(path="needle.yml", text=RULE)]
NOW = utc_now()


def hits(request: Request, matches: int = 2) -> list[dict[str, Any]]:
    """The reply to a hunt."""
    match = {"type": "match", "rule_id": "r1", "rule_title": "Needle", "level": "high", "kind": "detection",
             "input": "in", "offset": 7, "fields": {"message": "a needle <script>"}}  # fmt: skip
    rule = {"type": "rule", "id": "r1", "title": "Needle", "level": "high", "kind": "detection", "count": matches}
    end = {"type": "end", "state": "done", "events": 1000, "matches": matches, "oldest": NOW, "reached": NOW + 5,
           "until": NOW,
           "undecided": [], "not_run": ["x"], "not_correlated": [], "gone": 3}  # fmt: skip
    return [match] * matches + [rule, end]


def order(**more: Any) -> HuntOrder:
    return HuntOrder(**{"rules": RULES, "group": "all", "reason": "case 17", **more})


@asynccontextmanager
async def at_work(region: Region, **more: Any) -> AsyncIterator[tuple[Fleet, Agents]]:
    async with AsyncExitStack() as stack:
        agents = await stack.enter_async_context(Agents(region.settings, region.authority, SITES).running())
        for name in SITES:
            await agents.heartbeat(name)
        yield await stack.enter_async_context(region.console(heard=3, **more)), agents


@pytest.fixture
def region(tmp_path: Path) -> Any:
    region = Region(tmp_path, desired(1, group("rest")))
    region.broker.start()
    yield region
    region.broker.kill()


async def ended(fleet: Fleet, id: str, *states: str) -> Any:
    for pause in pauses():
        page = fleet.hunts.hunt(ADMIN, id)
        if page.hunt.state in states:
            return page
        await asyncio.sleep(pause)
    raise AssertionError(f"{page.hunt.state}, not {states}: {page}")


async def test_a_hunt(region: Region) -> None:
    """Counts by rule and host, first matches, notes; a silent agent is waited for, and answers when it is back; who may
    see one site sees that one's findings alone; both are in the centre's record."""
    async with at_work(region) as (fleet, agents):
        agents.answers = {"vienna-1": hits, "linz-1": lambda request: hits(request, 5)}
        id = (await fleet.hunts.start(ADMIN, order())).hunt.id
        for pause in pauses():
            page = fleet.hunts.hunt(ADMIN, id)
            if page.hunt.matches == 7:
                break
            await asyncio.sleep(pause)
        assert (page.hunt.state, page.hunt.asked, page.hunt.matches) == ("waiting", 3, 7)
        assert {row.agent: row.state for row in page.agents} == {
            "vienna-1": "done", "linz-1": "done", "vienna-2": "no answer",
        }  # fmt: skip
        assert [(rule.title, rule.level, rule.matches, rule.agents) for rule in page.rules] == [
            ("Needle", "high", 7, 2)
        ]
        assert [(host.agent, host.matches) for host in page.hosts] == [("linz-1", 5), ("vienna-1", 2)]
        assert page.matches[0].fields == {"message": "a needle <script>"}
        assert page.matches_count == 7
        assert any("3 events were deleted" in note for note in page.notes)
        agents.answers["vienna-2"] = hits
        page = await ended(fleet, id, "done")
        assert page.hunt.matches == 9
        assert page.hunt.share == 1.0
        assert page.hunt.by == "ada"

        mine = fleet.hunts.hunt(VIENNA, id)
        assert {row.agent for row in mine.agents} == {"vienna-1", "vienna-2"}
        assert {row.agent for row in mine.matches} == {
            "vienna-1",
            "vienna-2",
        }
        assert [rule.matches for rule in mine.rules] == [4]
        assert (mine.hunt.matches, mine.hunt.asked) == (4, 2)
        (row,) = (fleet.hunts.listed(VIENNA)).items
        assert (row.matches, row.asked, row.events) == (4, 2, 2000)
        (row,) = (fleet.hunts.listed(ADMIN)).items
        assert (row.id, row.state, row.matches, row.title) == (id, "done", 9, "Needle")
        line = next(
            row for row in Audit(region.folder / "requests/audit.jsonl").lines() if row["event"] == "request_made"
        )
        assert line["operator"] == "otto"
        assert line["reason"] == "case 17 (console: ada)"
        assert line["group"] == "all"
        assert page.texts == RULES
        assert b"logsource" not in (region.folder / "requests" / id / "console.json").read_bytes()  # lists read it


@pytest.mark.parametrize("where", ["vedette.region.requests", "vedette_console.fleet.authoring"])
async def test_a_request_that_cannot_be_kept(region: Region, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Nothing of it stays, neither in the folder of requests nor in the record, whatever of it a full disk refuses."""
    async with at_work(region) as (fleet, _):
        with monkeypatch.context() as patch:
            if where == "vedette.region.requests":
                whole = requests.write_whole

                def full(path: Path, *more: Any) -> None:
                    if path.name == "agents.json":
                        raise OSError(28, "No space left on device")
                    whole(path, *more)

                patch.setattr(requests, "write_whole", full)
            else:
                patch.setattr(desk, "write_rules", Mock(side_effect=OSError(28, "No space left on device")))
            with pytest.raises(Problem, match="No space left"):
                await fleet.hunts.start(ADMIN, order())
        folder = region.folder / "requests"
        assert not [*folder.glob("[0-9a-f]*")]
        assert not (folder / "audit.jsonl").exists()
        id = (await fleet.hunts.start(ADMIN, order())).hunt.id
        assert [path.parent.name for path in folder.glob("*/request.json")] == [id]


def test_rules_of_a_hunt_have_a_bound() -> None:
    """All of them together: they are kept as long as the hunt."""
    files = [RuleFile(path=f"{number}.test.yml", text="#" * (256 << 10)) for number in range(5)]
    assert order(rules=files[:4])
    with pytest.raises(ValueError, match="characters together"):
        order(rules=files)


async def test_only_where_one_may(region: Region) -> None:
    """A hunt over all by one who may act at one site asks that site's agents by name; elsewhere it is refused, and so
    is a viewer; a hunt that touches other sites cannot be cancelled."""
    async with at_work(region) as (fleet, agents):
        agents.answers = dict.fromkeys(SITES, hits)
        page = await fleet.hunts.start(VIENNA, order())
        await ended(fleet, page.hunt.id, "done")
        assert {agent for agent, request in agents.came if request.kind == "hunt"} == {"vienna-1", "vienna-2"}
        for who, more, status in (
            (VIENNA, {"group": "site = linz"}, 422),
            (VIENNA, {"group": "", "agents": ["linz-1"]}, 404),
            (VIEWER, {}, 403),
        ):
            with pytest.raises(Problem) as refused:
                await fleet.hunts.start(who, order(**more))
            assert refused.value.status == status
        agents.answers = {}
        id = (await fleet.hunts.start(ADMIN, order())).hunt.id
        with pytest.raises(Problem) as refused:
            await fleet.desk.cancel(VIENNA, id)
        assert refused.value.status == 403
        for more, status in (({"group": "site ="}, 422), ({"group": "site = oslo"}, 422), ({"since": "soon"}, 422),
                             ({"group": "", "agents": ["nobody"]}, 404), ({"expires": "9d"}, 422)):  # fmt: skip
            with pytest.raises(Problem) as refused:
                await fleet.hunts.start(ADMIN, order(**more))
            assert refused.value.status == status
        with pytest.raises(Problem, match=r"no rule runs: bad\.yml:1:") as refused:
            await fleet.hunts.start(ADMIN, order(rules=[RuleFile(path="bad.yml", text="title: x\ndetection: 7\n")]))


async def test_a_cancelled_hunt(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents at work are told; one that is silent is not waited for; what had been found stays."""
    monkeypatch.setattr(desk, "CANCEL_SECONDS", 1.0)
    async with at_work(region) as (fleet, agents):
        agents.answers = {"vienna-1": hits}
        id = (await fleet.hunts.start(ADMIN, order())).hunt.id
        await eventually("the answer", lambda: fleet.desk.at_work(id).hosts)  # type: ignore[union-attr]
        assert (await fleet.desk.cancel(ADMIN, id)).state == "cancelled"
        page = await ended(fleet, id, "cancelled")
        await eventually("the end", lambda: fleet.desk.at_work(id) is None)
        assert page.hunt.matches == 2
        assert not page.hunt.may_cancel
        assert {agent for agent, request in agents.came if request.kind == CANCEL} == {"vienna-2", "linz-1"}
        with pytest.raises(Problem) as refused:
            await fleet.desk.cancel(ADMIN, id)
        assert refused.value.status == 409


async def test_a_hunt_from_the_future(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was asked while the console's clock was a year ahead has expired when it is set right: agents refuse it,
    and it keeps no place of those that its user may have under way."""
    monkeypatch.setattr(desk, "TURN_SECONDS", 1.0)
    async with at_work(region) as (fleet, agents):
        with monkeypatch.context() as ahead:
            later = requests.moment() + 365 * 86_400_000_000
            ahead.setattr(requests, "moment", lambda: later)
            ahead.setattr(desk, "utc_now", lambda: later)
            id = (await fleet.hunts.start(ADMIN, order())).hunt.id
            await eventually("it to be asked", lambda: agents.came)
        assert (await ended(fleet, id, "expired")).hunt.state == "expired"
        await eventually("the end of the turn", lambda: fleet.desk.at_work(id) is None)


async def test_a_restart_in_the_middle(region: Region) -> None:
    """The next console goes on where the one before was; also one whose request never left it."""
    async with at_work(region) as (fleet, agents):
        agents.answers = {"vienna-1": hits}
        id = (await fleet.hunts.start(ADMIN, order())).hunt.id
        await eventually("the answer", lambda: fleet.desk.at_work(id).hosts)  # type: ignore[union-attr]
    async with at_work(region) as (fleet, agents):
        agents.answers = dict.fromkeys(SITES, hits)  # they know nothing of it: it is sent again
        page = await ended(fleet, id, "done")
        assert page.hunt.matches == 6
        assert page.texts == RULES
        assert page.hunt.by == "ada"
        assert "vienna-1" not in {agent for agent, request in agents.came if request.kind == "hunt"}
    (region.folder / "next.pem").write_bytes(Authority().pem)
    async with region.console(authorities=region.folder / "next.pem") as fleet:  # what was believed once stays so
        page = fleet.hunts.hunt(ADMIN, id)
        assert (page.hunt.matches, {row.state for row in page.agents}) == (6, {"done"})
        assert len(page.matches) == 6
    async with region.console() as fleet:
        assert (fleet.hunts.hunt(ADMIN, id)).hunt.matches == 6
        async with region.console(heard=3) as second:  # in the same folder
            with pytest.raises(Problem, match="another console works"):
                await second.questions.ask(ADMIN, FLEET, "linz-1", Question(question="disk"))


async def test_a_full_disk_at_the_end(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is over and cannot be written down says why, and is over once the disk takes it; a cancelled one
    keeps nobody from asking."""
    monkeypatch.setattr(desk, "MAX_OWN", 1)
    full, write = True, Note.write

    def failing(note: Note, folder: Path) -> None:
        if note.state and full:
            raise OSError(28, "No space left on device")
        write(note, folder)

    monkeypatch.setattr(Note, "write", failing)
    async with at_work(region) as (fleet, agents):
        agents.answers = dict.fromkeys(SITES, hits)
        first = (await fleet.hunts.start(ADMIN, order())).hunt.id
        await eventually("its end to fail", lambda: "No space" in fleet.hunts.hunt(ADMIN, first).hunt.why)
        with pytest.raises(Problem, match="1 of your requests"):
            await fleet.hunts.start(ADMIN, order())
        await fleet.desk.cancel(ADMIN, first)
        second = (await fleet.hunts.start(ADMIN, order())).hunt.id
        await eventually("its end to fail", lambda: "No space" in fleet.hunts.hunt(ADMIN, second).hunt.why)
        full = False
        assert (await ended(fleet, second, "done")).hunt.matches == 6
        await eventually("no request to be open", lambda: not any(map(fleet.desk.at_work, (first, second))))
        assert fleet.hunts.hunt(ADMIN, first).hunt.state == "cancelled"
        assert (region.folder / "requests" / "audit.jsonl").read_text().count('"request_collected"') == 2


async def test_who_waits_for_the_disk_waits_for_no_turn(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was over before a restart makes no conversation give way."""
    write = Note.write

    def failing(note: Note, folder: Path) -> None:
        if note.state:
            raise OSError(28, "No space left on device")
        write(note, folder)

    monkeypatch.setattr(Note, "write", failing)
    async with at_work(region) as (fleet, agents):
        agents.answers = dict.fromkeys(SITES, hits)
        id = (await fleet.hunts.start(ADMIN, order())).hunt.id
        await eventually("its end to fail", lambda: "No space" in fleet.hunts.hunt(ADMIN, id).hunt.why)
    async with region.console() as fleet:
        asked = fleet.desk.at_work(id)
        assert asked is not None
        await eventually("its end to fail", lambda: "No space" in asked.outage)
        assert not asked.queued


async def test_a_task_that_has_failed(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request counts no more, and ends when it is cancelled."""
    monkeypatch.setattr(desk, "MAX_OWN", 1)
    async with at_work(region) as (fleet, agents):
        agents.answers = dict.fromkeys(SITES, hits)
        with monkeypatch.context() as patch:
            patch.setattr(desk.Asked, "settled", lambda asked: 1 / 0)
            id = (await fleet.hunts.start(ADMIN, order())).hunt.id
            await eventually("it to fail", lambda: "division" in fleet.hunts.hunt(ADMIN, id).hunt.why)
        other = (await fleet.hunts.start(ADMIN, order())).hunt.id
        await ended(fleet, other, "done")
        await fleet.desk.cancel(ADMIN, id)
        await eventually("its end", lambda: fleet.desk.at_work(id) is None)


async def test_a_broker_that_goes_away(region: Region) -> None:
    """The hunt says so, and goes on when it is back."""
    async with at_work(region) as (fleet, agents):
        id = (await fleet.hunts.start(ADMIN, order())).hunt.id
        await eventually("it to be asked", lambda: len(agents.came) >= 3)
        region.broker.kill()
        await ended(fleet, id, "broker away")
        region.broker.start()
        agents.answers = dict.fromkeys(SITES, hits)
        assert (await ended(fleet, id, "done")).hunt.matches == 6


async def test_hosts_that_are_away_keep_nobody_waiting(region: Region, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every turn taken by one user's questions to a host that is away, another's is answered; who has MAX_OWN
    under way is refused, others are not."""
    monkeypatch.setattr(desk, "AT_ONCE", 2)
    monkeypatch.setattr(desk, "MAX_OWN", 3)
    monkeypatch.setattr(desk, "SHARE_SECONDS", 1.0)
    monkeypatch.setattr(requests, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(questions, "WAIT_SECONDS", 0.0)
    monkeypatch.setattr(desk, "CANCEL_SECONDS", 2.0)
    async with at_work(region) as (fleet, agents):
        agents.answers = {"linz-1": lambda request: [{"type": "end"}]}
        asks = [fleet.questions.ask(VIENNA, FLEET, "vienna-1", Question(question="disk")) for _ in range(4)]
        begun = [page.job.id for page in await asyncio.gather(*asks, return_exceptions=True)
                 if not isinstance(page, BaseException)]  # fmt: skip
        assert len(begun) == 3
        with pytest.raises(Problem, match="3 of your requests"):
            await fleet.questions.ask(VIENNA, FLEET, "vienna-1", Question(question="disk"))
        id = (await fleet.questions.ask(ADMIN, FLEET, "linz-1", Question(question="disk"))).job.id
        await eventually("the answer", lambda: fleet.questions.answer(ADMIN, id).job.state == "done")
        await fleet.desk.cancel(VIENNA, begun[0])
        await eventually("its end", lambda: fleet.desk.at_work(begun[0]) is None)


async def test_hosts_that_say_anything(region: Region) -> None:
    """A reply that nests, overflows and has no texts: the others' are shown, a console starts on it, and on a request
    whose note is damaged."""
    deep = orjson.Fragment(nested(1000))
    rows = [{"type": "rule", "id": deep, "title": {"a": 1}, "count": 2**64 - 1},
            {"type": "match", "rule_title": ["x"], "fields": {"deep": deep}},
            {"type": "end", "events": 2**64 - 1, "matches": 2**64 - 1, "reached": 2**62, "not_run": 7}]  # fmt: skip
    async with at_work(region) as (fleet, agents):
        agents.answers = {"linz-1": hits, "vienna-1": lambda request: rows}
        id = (await fleet.hunts.start(ADMIN, order())).hunt.id
        for pause in pauses():
            page = fleet.hunts.hunt(ADMIN, id)
            if {row.agent for row in page.agents if row.state == "done"} == {"vienna-1", "linz-1"}:
                break
            await asyncio.sleep(pause)
        assert page.hunt.matches == 2
        assert page.model_dump_json()
    for number, damage in enumerate((b"[1]", b'{"created": "x", "totals": {}}', nested(900))):
        place = region.folder / "requests" / f"{number:032x}"
        place.mkdir()
        (place / "console.json").write_bytes(damage)
    async with at_work(region) as (fleet, agents):
        assert [row.id for row in fleet.hunts.listed(ADMIN).items] == [id]
        agents.answers["vienna-2"] = hits
        assert (await ended(fleet, id, "done")).hunt.matches == 4


async def test_forged_replies(region: Region) -> None:
    """Of another's key, of another agent, of a stranger: not believed, and the true one counts."""
    async with at_work(region) as (fleet, agents):
        id = (await fleet.hunts.start(ADMIN, order(group="", agents=["linz-1"]))).hunt.id
        await eventually("it to be asked", lambda: agents.came)
        (row,) = hits(agents.came[0][1], 999)[-2:-1]
        data = packed(orjson.dumps(row) + b"\n")
        part = Part(0, data, len(orjson.dumps(row)) + 1, True, "done")
        await agents.say("linz-1", "replies", pack(id, part, Authority().agent("linz-1")))
        await agents.say("linz-1", "replies", pack(id, part, agents.keys["vienna-1"]))
        await agents.say("linz-1", "replies", b"\x00" * 100)
        agents.answers = {"linz-1": hits}
        assert (await ended(fleet, id, "done")).hunt.matches == 2
        refused = [
            row for row in Audit(region.folder / "requests/audit.jsonl").lines() if row["event"] == "reply_refused"
        ]
        assert refused


async def test_evidence(region: Region) -> None:
    """The lines around an alert, its own marked, kept beside it with a manifest; not at a site where one may not."""
    lines: list[dict[str, Any]] = [
        {"log_id": "0" * 32, "offset": i, "length": 3, "input": "in", "received_at": NOW, "raw": f"line {i}"}
        for i in range(5)
    ]  # fmt: skip
    lines[2]["alert"] = True
    async with at_work(region) as (fleet, agents):
        ref = {"log_id": "0" * 32, "offset": 2, "length": 3}
        fleet.evidence._locate = lambda day, agent, alert: Found(alert, agent, ref) if alert == "a-1" else None
        agents.answers = {"linz-1": lambda request: [*lines, {"note": "the log begins here"}]}
        asked = EvidenceOrder(alert="a-1", agent="linz-1", day="2026-11-22", around=2, reason="case 17")
        id = (await fleet.evidence.pull(ADMIN, asked)).job.id
        await eventually("the end", lambda: fleet.desk.at_work(id) is None)
        page = fleet.evidence.reply(ADMIN, id)
        assert [line.text for line in page.lines if line.alert] == ["line 2"]
        assert page.lines[5].note
        assert (page.state, page.total, page.job.state) == ("done", 6, "done")
        manifest = orjson.loads((region.folder / "evidence" / page.manifest).read_bytes())
        assert manifest["sha256"] == page.sha256
        assert manifest["reason"] == "case 17 (console: ada)"
        part = fleet.evidence.reply(ADMIN, id, 4, 2)
        assert [line.text for line in part.lines] == ["line 4", ""]
        assert [pulled.job.id for pulled in fleet.evidence.of(ADMIN, "a-1")] == [id]
        assert fleet.evidence.of(VIENNA, "a-1") == []
        for who, alert, status in ((VIENNA, "a-1", 404), (VIEWER, "a-1", 403), (ADMIN, "a-2", 404)):
            with pytest.raises(Problem) as refused:
                await fleet.evidence.pull(who, asked.model_copy(update={"alert": alert}))
            assert refused.value.status == status
        with pytest.raises(Problem) as refused:
            fleet.evidence.reply(VIENNA, id)
        assert refused.value.status == 404


async def test_questions(region: Region) -> None:
    """An agent answers at once, or later; who may not ask there is refused; a question that is none is, too."""
    async with at_work(region) as (fleet, agents):
        agents.answers = {"vienna-1": lambda request: [{"disk_free_bytes": 7, "asked": request.body}]}
        page = await fleet.questions.ask(VIENNA, FLEET, "vienna-1", Question(question="disk"))
        assert page.records == {"vienna-1": [{"disk_free_bytes": 7, "asked": {"question": "disk"}}]}
        assert page.agents[0].state == "done"
        assert page.job.operator == "otto"
        page = await fleet.questions.do(VIENNA, FLEET, "vienna-1", Action(action="reload", reason="new certificate"))
        assert page.records["vienna-1"][0]["asked"] == {"action": "reload"}
        for who, agent, question, status in (
            (VIENNA, "linz-1", Question(question="disk"), 404), (VIEWER, "linz-1", Question(question="disk"), 403),
            (ADMIN, "linz-1", Question(question="explain"), 422), (ADMIN, "oslo-1", Question(question="disk"), 404),
        ):  # fmt: skip
            with pytest.raises(Problem) as refused:
                await fleet.questions.ask(who, FLEET, agent, question)
            assert refused.value.status == status


async def test_keys_that_hosts_would_refuse(region: Region, tmp_path: Path) -> None:
    """A wrong key, an operator who has expired or lacks the role: said at once, and nothing is sent."""
    async with at_work(region) as (fleet, agents):
        region.write_key(Ed25519PrivateKey.generate())
        with pytest.raises(Problem, match="not that of operator otto") as refused:
            await fleet.questions.ask(ADMIN, FLEET, "linz-1", Question(question="disk"))
        assert refused.value.status == 409
        region.write_key(region.key)
        region.roles = ("viewer",)
        region.desire(desired(2, group("rest")))
        with pytest.raises(Problem, match="lacks the role analyst"):
            await fleet.hunts.start(ADMIN, order())
        region.until = utc_now() - 1_000_000
        region.desire(desired(3, group("rest")))
        with pytest.raises(Problem, match="otto has expired"):
            await fleet.questions.ask(ADMIN, FLEET, "linz-1", Question(question="disk"))
        assert agents.came == []
