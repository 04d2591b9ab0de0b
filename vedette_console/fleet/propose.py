"""A proposal: rule files, to a signed bundle, to ``fleet.toml``, to signed documents, to the controller's first ring.

Each step is done by what a command does, with the same checks; where the console lacks a key it stops there and answers
with the commands that go on. What it signs stands in the fleet's own record, as by any signer.

    WORK/proposals/ID/proposal.json     how far it is; replaced whole
    WORK/proposals/ID/rules/            the rules that were built, while they are

One proposal at a time. Nothing is put in force that is not this proposal: when ``fleet.toml`` has other changes, or
other documents wait for signatures, it is refused.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import orjson

from vedette.bundle.install import read_bundle
from vedette.bundle.manifest import rfc3339
from vedette.bundle.trust import inspect
from vedette.fleet.documents import Group
from vedette.region import announce, compare, fleetfile, fleetlookups
from vedette.region.repository import Repository
from vedette.system.durable import write_whole
from vedette.system.wallclock import utc_now
from vedette.system.within import within
from vedette_console.fleet import building
from vedette_console.fleet.building import Built
from vedette_console.fleet.documents import Documents, Known
from vedette_console.fleet.fleettoml import with_bundle
from vedette_console.fleet.given import Given, key_of
from vedette_console.fleet.live import Live
from vedette_console.fleet.models import Finding, Moved, Proposal, ProposalsList, Proposed
from vedette_console.fleet.overview import target
from vedette_console.fleet.places import may_on_group, need_group
from vedette_console.security.principal import Principal
from vedette_console.web import Problem

WAIT_SECONDS = 20.0
"""For the answer, before the page shows that it is being built."""
WAITING, KEPT = 10, 200
ACT = "rollout.propose"


class Proposals:
    def __init__(self, given: Given, live: Live, documents: Documents, news: Callable[[str], None]) -> None:
        self._given, self._live, self._documents, self._news = given, live, documents, news
        self._folder = given.work / "proposals"
        self._turn = asyncio.Lock()
        self._made: dict[str, Proposed] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        for one in await asyncio.to_thread(self._read):
            if one.state == "building":
                why = Finding(severity="error", message="the console ended while it was built: propose it again")
                one = await self._write(one.model_copy(update={"state": "refused", "problems": [why]}))
            self._made[one.id] = one

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _read(self) -> list[Proposed]:
        found = []
        for path in self._folder.glob("*/proposal.json"):
            with suppress(OSError, ValueError):
                found.append(Proposed.model_validate_json(path.read_bytes()))
        return sorted(found, key=lambda one: one.created)

    async def _write(self, one: Proposed) -> Proposed:
        self._made[one.id] = one
        with suppress(OSError):
            data = orjson.dumps(one.model_dump())
            await asyncio.to_thread(write_whole, self._folder / one.id / "proposal.json", data, 0o600)
        self._news(one.id)
        return one

    # --- for people

    async def propose(self, who: Principal, asked: Proposal) -> Proposed:
        """Raises Problem; what comes of building it is in the answer."""
        self._given.need_trust()
        known = await asyncio.to_thread(self._documents.read)
        group = self._group(known, asked.group)
        need_group(who, ACT, known.fleet, group, {beat.site for beat in self._live.beats(known.fleet)})
        if bool(asked.rules) == bool(asked.bundle):
            raise Problem(422, "propose either rules or a bundle", where="rules")
        if len(self._tasks) >= WAITING:
            raise Problem(429, "too many proposals are being built", what_to_do="try again in a minute")
        id = secrets.token_hex(8)
        try:
            await asyncio.to_thread((self._folder / id).mkdir, mode=0o700, parents=True)
        except OSError as error:
            raise Problem(503, f"the proposal cannot be kept: {error}", what_to_do=f"look at {self._folder}") from error
        one = await self._write(Proposed(
            id=id, state="building", by=who.who, reason=asked.reason, created=rfc3339(utc_now()), group=asked.group,
            ruleset=asked.ruleset,
        ))  # fmt: skip
        task = asyncio.create_task(self._conduct(one, asked))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait({task}, timeout=WAIT_SECONDS)
        return self._made[id]

    def _group(self, known: Known, name: str) -> Group:
        for group in known.desired.groups if known.desired is not None else ():
            if group.name == name:
                return group
        raise Problem(404, f"no group {name} in the desired document", where="group", what_to_do="see /fleet")

    def _seen(self, who: Principal, one: Proposed) -> bool:
        known = self._documents.read()
        sites = {beat.site for beat in self._live.beats(known.fleet)}
        groups = known.desired.groups if known.desired is not None else ()
        group = next((group for group in groups if group.name == one.group), None)
        return who.sites().all or (group is not None and may_on_group(who, "read", known.fleet, group, sites))

    def sees(self, id: str, who: Principal) -> bool:
        return id in self._made and self._seen(who, self._made[id])

    def listed(self, who: Principal, offset: int, limit: int) -> ProposalsList:
        found = [one for one in reversed([*self._made.values()]) if self._seen(who, one)]
        end = offset + limit
        return ProposalsList(items=found[offset:end], total=len(found), next=str(end) if end < len(found) else None)

    def one(self, who: Principal, id: str) -> Proposed:
        """Raises Problem 404."""
        found = self._made.get(id)
        if found is None or not self._seen(who, found):
            raise Problem(404, f"no proposal {id[:64]}", where="id", what_to_do="see /rollouts/proposals")
        return found

    # --- at work

    async def _conduct(self, one: Proposed, asked: Proposal) -> None:
        place = self._folder / one.id
        async with self._turn:
            try:
                one = await self._make(one, asked, place)
            except Problem as error:
                one = _refused(one, f"{error.body.error}: {error.body.what_to_do}".removesuffix(": "))
            except (OSError, ValueError, LookupError) as error:
                one = _refused(one, *str(error).splitlines()[:50])
            finally:
                await asyncio.to_thread(shutil.rmtree, place / "rules", ignore_errors=True)
            await self._write(one)
        for old in [*self._made][:-KEPT]:
            await asyncio.to_thread(shutil.rmtree, self._folder / old, ignore_errors=True)
            del self._made[old]

    async def _make(self, one: Proposed, asked: Proposal, place: Path) -> Proposed:
        """Raises Problem, OSError, ValueError."""
        known = await asyncio.to_thread(self._documents.read)
        group, repository = self._group(known, asked.group), Repository(self._given.need_trust())
        if known.signatures:
            raise ValueError(
                "other documents wait for signatures: `vedette fleet sign` and `apply`, or `plan --discard`"
            )
        if asked.rules:
            built = await self._build(known, repository, group, asked, place)
            one = one.model_copy(update={
                "version": built.version, "base": built.base, "summary": built.summary,
                "problems": built.findings[:200],
            })  # fmt: skip
            if not built.data:
                return one.model_copy(update={"state": "refused"})
            path = f"bundles/{built.name}-{built.version}.vbundle"
            data = await asyncio.to_thread(building.signed, self._given, built.data, known.fleet)
            if data is None or self._given.fleet_file is None:
                unsigned = place / Path(path).name
                await asyncio.to_thread(write_whole, unsigned, data or built.data, 0o600)
                commands = self._by_hand(known, one, unsigned, path, data is None)
                return one.model_copy(update={"state": "commands", "bundle": str(unsigned), "commands": commands})
            await asyncio.to_thread(_put, within(self._given.fleet_file.parent, path), data)
        else:
            path = asked.bundle
            if self._given.fleet_file is None:
                raise Problem(503, "the console does not know fleet.toml", what_to_do="start it with --fleet-file FILE")
            bundle = inspect(await asyncio.to_thread(read_bundle, self._below(path)))
            one = one.model_copy(update={"version": bundle.version})
        return await self._desire(one.model_copy(update={"bundle": path}), known, repository, asked)

    def _below(self, path: str) -> Path:
        """Raises Problem 422."""
        assert self._given.fleet_file is not None
        try:
            place = within(self._given.fleet_file.parent, path)
        except ValueError as error:
            raise Problem(422, f"no bundle below the folder of fleet.toml: {error}", where="bundle") from error
        if not path.endswith(".vbundle"):
            raise Problem(422, f"{path!r} is no bundle below the folder of fleet.toml", where="bundle")
        return place

    async def _build(
        self, known: Known, repository: Repository, group: Group, asked: Proposal, place: Path
    ) -> Built:  # fmt: skip
        roots, base, name = await asyncio.to_thread(
            building.lay, self._given, repository, group, asked.ruleset, place / "rules"
        )
        mine = await asyncio.to_thread(building.over, roots, asked.rules)
        built = Built(name, building.next_version(known.desired), base)
        await building.build(self._given, roots, mine, built, place / "rules" / "built.vbundle")
        return built

    def _by_hand(self, known: Known, one: Proposed, unsigned: Path, path: str, sign: bool) -> list[str]:
        broker = f" --broker {self._given.broker.url}" if self._given.broker is not None else ""
        key = f'bundle = "{path}"' if one.ruleset == "default" else f'bundles = {{ {one.ruleset} = "{path}" }}'
        return [
            f"vedette bundle sign {unsigned} --key AUTHOR.pem --fleet {known.fleet} -o {path}" if sign
            else f"cp {unsigned} {path}",
            f"# in fleet.toml, [[group]] {one.group}: {key}",
            f"vedette fleet plan fleet.toml{broker}", "vedette fleet sign --key YOUR.pem",
            f"vedette fleet apply{broker}",
        ]  # fmt: skip

    async def _desire(self, one: Proposed, known: Known, repository: Repository, asked: Proposal) -> Proposed:
        """From a signed bundle to what is in force, as far as the console's keys go."""
        path = self._given.fleet_file
        assert path is not None
        diff, changes = await asyncio.to_thread(stage, path, repository, one, asked.retry)
        one = one.model_copy(update={"diff": diff, "changes": changes})
        broker = f" --broker {self._given.broker.url}" if self._given.broker is not None else ""
        missing = await asyncio.to_thread(self._sign, repository)
        if missing:
            return one.model_copy(update={"state": "staged", "commands": [
                *["vedette fleet sign --key YOUR.pem"] * missing, f"vedette fleet apply{broker}"]})  # fmt: skip
        try:
            await asyncio.to_thread(repository.commit)
        except FileNotFoundError:  # the online keys are elsewhere
            return one.model_copy(update={"state": "staged", "commands": [f"vedette fleet apply{broker}"]})
        published = False
        if self._given.broker is not None:
            with suppress(OSError):  # the controller announces what is in force, too
                await announce.announce(self._given.broker, repository)
                published = True
        return one.model_copy(update={"state": "applied", "published": published,
                                      "commands": [] if published else [f"vedette fleet apply{broker}"]})  # fmt: skip

    def _sign(self, repository: Repository) -> int:
        """With the signers' keys that are here; how many signatures lack then."""
        for key in self._given.signer_keys:
            repository.sign(key_of(key))
        return sum(one.missing for one in repository.signatures())


def stage(path: Path, repository: Repository, one: Proposed, retry: bool) -> tuple[list[Moved], list[str]]:
    """Write the change to ``fleet.toml`` and stage the documents that it means: what moves, and the ids of the changes.
    Blocking; raises ValueError when anything else would move, OSError."""
    text = with_bundle(path.read_text("utf-8"), one.group, one.ruleset, one.bundle)
    beside = path.with_name(f".{path.name}.{one.id}")  # the paths in it are relative to its folder
    try:
        beside.write_text(text, "utf-8")
        made = fleetfile.read(beside, repository.fleet)
    finally:
        beside.unlink(missing_ok=True)
    before = repository.desired()
    after = fleetfile.next_desired(made, repository.fleet, before, repository.rollout(), utc_now(), retry=retry)
    operators = fleetfile.next_operators(made, repository.fleet, repository.operators())
    if after is None:
        raise ValueError(
            "nothing changes: this bundle is desired already (with `retry` an aborted change begins again)"
        )
    moved = compare.differences(before, after)
    others = [
        f"{row.group}: {row.what}" for row in moved if (row.group, row.what) != (one.group, f"bundles {one.ruleset}")
    ]
    rings = before is not None and (before.rings, before.gates) != (after.rings, after.gates)
    if others or operators is not None or rings:
        what = ", ".join([*others, *(["operators"] if operators else []), *(["rings or gates"] if rings else [])])
        raise ValueError(
            f"fleet.toml has other changes that are not in force ({what}): plan, sign and apply these first"
        )
    fleetlookups.keep(repository.folder, made.lookups)
    repository.stage_desired(after, made.files, operators)
    write_whole(path, text.encode(), path.stat().st_mode & 0o777)
    group = next(group for group in after.groups if group.name == one.group)
    diff = [Moved(group=row.group, what=row.what, before=target(row.before), after=target(row.after)) for row in moved]
    return diff, [group.bundles[one.ruleset].id]


def _put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data)


def _refused(one: Proposed, *reasons: str) -> Proposed:
    problems = [*one.problems, *(Finding(severity="error", message=text[:2000]) for text in reasons)]
    return one.model_copy(update={"state": "refused", "problems": problems})
