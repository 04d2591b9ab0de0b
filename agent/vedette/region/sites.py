"""Sites without a connection: what is carried to their hosts, and what comes back from them.

To a site goes what any of its agents may need, by the groups that an agent there can be in, with all metadata: a zip of
the layout that agents read (``fleet/carried.py``). What hosts answer is kept in ``FOLDER/answers``, a file an agent,
and read as if it were its heartbeat. Requests that were made without a broker travel in the same zips
(``region/requests.py``), and so do their replies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson
from msgspec import Struct

from vedette.fleet import labels, releases
from vedette.fleet.audit import Audit, Head, verify
from vedette.fleet.carried import Answer
from vedette.fleet.documents import Desired, Group
from vedette.fleet.kinds import KINDS
from vedette.fleet.requests import read, withdrawn
from vedette.region import fleetlookups, renewals, requests
from vedette.region.enroll import Region
from vedette.region.repository import Repository, needed_blobs, needed_metadata
from vedette.region.requests import CANCELLED, CARRY
from vedette.system import documents, foreign
from vedette.system.documents import Count
from vedette.system.durable import write_whole

CERTIFICATES = "certificates"
"""In the fleet's folder: answers to requests for a certificate that came by file, a file an agent."""


def groups_at(desired: Desired, site: str) -> list[Group]:
    """Those in which an agent of ``site`` can be."""
    groups = []
    for group in desired.groups:
        may, may_not = labels.possible(group.expression, {"site": site})
        if may:
            groups.append(group)
        if not may_not:
            break
    return groups


def files_for(repository: Repository, site: str) -> Iterator[tuple[str, Path | bytes]]:
    """Name and file of all that goes to ``site``. Raises ValueError and OSError."""
    desired = repository.desired()
    if desired is None:
        raise ValueError("nothing is desired yet: `vedette fleet plan`")
    here = groups_at(desired, site)
    if not here:
        raise ValueError(f"no group can have an agent of site {site!r}")
    for name in needed_metadata(repository):
        yield f"tuf/{name}", repository.folder / "tuf" / name
    elsewhere = _named(repository, desired.groups) - _named(repository, here)
    for path in needed_blobs(repository):
        if path.name not in elsewhere:
            yield f"blobs/{path.name}", path
    changes = [change for group in here for change in group.lookups.values()]
    wanted = {target.sha256 for change in changes for target in (change.to, change.from_) if target is not None}
    for lookup in fleetlookups.needed(repository.folder, desired):
        if lookup.target.sha256 in wanted:
            yield f"lookups/{lookup.path.name}", lookup.path


def requests_for(folder: Path, trust: Path, site: str, now: int) -> Iterator[tuple[str, bytes]]:
    """Name and envelope of all that waits in ``folder`` to be carried to agents of ``site``, or to such as have never
    answered; of what was cancelled, that. Raises ValueError and OSError."""
    sites = {agent: labels.labels_of(row).get("site") for agent, row in answers(trust).items()}
    for mark in sorted(folder.glob(f"*/{CARRY}")):
        cancelled = mark.with_name(CANCELLED)
        request, _, envelope, asked = requests.made(mark.parent)
        if cancelled.exists():
            envelope = cancelled.read_bytes()
            request = read(envelope)[0]
        if request.expires > now and any(sites.get(agent, site) == site for agent in asked):
            yield f"requests/{request.id}.json", envelope


def certificates_for(trust: Path, site: str) -> Iterator[tuple[str, Path]]:
    """Name and file of the renewed certificates of agents of ``site``, and of such as have never answered."""
    sites = {agent: labels.labels_of(row).get("site") for agent, row in answers(trust).items()}
    for path in sorted((trust / CERTIFICATES).glob("*.json")):
        if sites.get(path.stem, site) == site:
            yield f"certificates/{path.name}", path


def renew(trust: Path, region: Region, answer: Answer, request: bytes | None, days: int) -> bool:
    """Have a host's next certificate, or the one that it has with the authorities as they are now, carried to it by
    the next zip; whether it is a new one. Raises ValueError with the reason why not, OSError."""
    if request is not None:
        renewal, fresh = renewals.renew(region, answer.fleet, answer.agent, request, days)
    elif region.member(answer.agent).key:
        renewal, fresh = renewals.answer(region, region.certificate(answer.agent)), False
    else:  # its key was made here: `vedette member renew`
        return False
    place = trust / CERTIFICATES
    place.mkdir(exist_ok=True)
    write_whole(place / f"{answer.agent}.json", renewal.to_bytes())
    return fresh


def recall(folder: Path, repository: Repository, now: int) -> Iterator[tuple[str, str]]:
    """Have nothing carried for who may not ask it any more; each such request, and why. Raises ValueError and
    OSError."""
    operators = repository.operators()
    for mark in sorted(folder.glob(f"*/{CARRY}")):
        request, signature, _, _ = requests.made(mark.parent)
        why = (
            "the fleet has no operators" if operators is None else withdrawn(request, signature, operators, KINDS, now)
        )
        if why and not mark.with_name(CANCELLED).exists():
            Audit(folder / "audit.jsonl").append(
                "request_ended", request=request.id, operator=request.operator, kind=request.kind, why=why
            )
            mark.unlink()
            yield request.id, why


def take_replies(
    folder: Path, answer: Answer, parts: Iterable[tuple[str, bytes]], authorities: bytes, revoked: Collection[int] = ()
) -> Iterator[tuple[requests.Collection, int]]:
    """Give the parts of an agent's replies to the requests in ``folder`` that they answer, with the checks of those
    that a broker brings; each request with the number of parts that are new. Those of requests made elsewhere are
    passed over. Raises ValueError and OSError."""
    for id, group in groupby(parts, key=lambda part: part[0]):
        if not (folder / id / "request.json").exists():
            continue
        collection = requests.Collection(folder / id, authorities, revoked)
        new = sum(collection.take(answer.agent, message) is not None for _, message in group)
        collection.close()
        yield collection, new


def _named(repository: Repository, groups: Any) -> set[str]:
    """SHA-256 of the files that groups name, pieces of releases among them."""
    digests = set()
    for group in groups:
        for kind, _, change in group.changes():
            for target in (change.to, change.from_):
                if target is None:
                    continue
                digests.add(target.sha256)
                if kind == "release":
                    archives = releases.read(repository.blob(target.sha256)).archives.values()
                    digests |= {piece for archive in archives for file in archive.files() for piece in file.pieces}
    return digests


def keep(folder: Path, answer: Answer) -> str:
    """Keep what an agent answered, in place of its answer before; returns what is wrong with its record, or nothing.
    Raises ValueError for an answer older than the one that is kept or of a wrong form, of which nothing is kept;
    OSError."""
    _head(answer.status)
    row = orjson.dumps({**answer.status, "time": answer.time, "proved": answer.proved})
    place = folder / "answers"
    place.mkdir(exist_ok=True)
    before = answers(folder).get(answer.agent)
    if before is not None and before["time"] > answer.time:
        raise ValueError(f"{answer.agent} has answered later than that already")
    record = place / f"{answer.agent}.audit.jsonl"
    write_whole(record, answer.audit)
    _, fault = verify(record, _head(before) if before is not None else None)
    write_whole(place / f"{answer.agent}.json", row)
    return "" if fault is None else f"its record was changed: line {fault.line}: {fault.reason}"


def _head(status: Mapping[str, Any]) -> Head | None:
    """The end of an agent's record, as its status names it; None: it names none. Raises ValueError."""
    audit = documents.read(_Status, status).actual.audit
    return Head(audit.seq, audit.digest) if audit.seq else None


class _Audit(Struct, frozen=True):
    seq: Count = 0
    digest: str = ""


class _Actual(Struct, frozen=True):
    audit: _Audit = _Audit()


class _Status(Struct, frozen=True):
    """What is read of an agent's status."""

    actual: _Actual = _Actual()


def answers(folder: Path) -> dict[str, dict[str, Any]]:
    """The newest answer of each agent, as a heartbeat."""
    return {path.stem: foreign.read(path.read_bytes()) for path in sorted((folder / "answers").glob("*.json"))}
