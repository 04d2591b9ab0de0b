"""Which requests an agent acts on: each check refuses what it is for, and nothing else."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fleet.asking import AGENT, HOUR, KEYS, NOW, OPERATORS, asked, host, signed, spooled
from tests.fleet.conftest import Synced
from vedette.fleet.documents import DocumentRefused, canonical
from vedette.fleet.kinds import KINDS
from vedette.fleet.operators import Operators, read_operators
from vedette.fleet.requests import DOMAIN, MAX_LIFE, MAX_REQUEST, Host, Refused, Request, admit, follow_up, read
from vedette.fleet.signedtime import SignedTime
from vedette.fleet.spool import Spool


def decide(data: bytes, where: Host | None = None, *, seen: str = "", kind: str = "") -> Request:
    return admit(data, where or host(), KINDS, lambda nonce: nonce == seen, lambda id: kind)


def refused(data: bytes, where: Host | None = None, *, seen: str = "", kind: str = "") -> str:
    with pytest.raises(Refused) as caught:
        decide(data, where, seen=seen, kind=kind)
    return caught.value.kind


def test_good_ones() -> None:
    """By agent or by group, signed by an operator who may."""
    for request in (
        asked(),
        asked(agents=None, group="site = vienna and not id = linz-1"),
        asked("do", "otto", body={"action": "rollback", "ruleset": "default", "version": 3}),
    ):
        assert decide(signed(request), host(allow=("ask", "do"))) == request


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("operator", asked(operator="mallory").signed(KEYS["vera"])),
        ("signature", signed(asked(), by="ann")),
        ("fleet", signed(asked(fleet="ships"))),
        ("agent", signed(asked(agents=("linz-1",)))),
        ("agent", signed(asked(agents=None, group="site = linz"))),
        ("malformed", signed(asked(agents=None, group="site = "))),
        ("operator expired", signed(asked(operator="past"))),
        ("expired", signed(asked(created=NOW - 2 * HOUR, expires=NOW))),
        ("expired", signed(asked(created=NOW + HOUR, expires=NOW + 2 * HOUR))),
        ("expired", signed(asked(expires=NOW + MAX_LIFE + 1_000_000))),
        ("role", signed(asked("do", body={"action": "reload"}))),
        ("role", signed(asked(operator="ann"))),
        ("not allowed", signed(asked("do", "otto", body={"action": "reload"}))),
        ("kind", signed(asked("shell", body={"run": "id"}))),
        ("body", signed(asked(body={"question": "shadow"}))),
        ("body", signed(asked(body={"question": "status", "path": "/etc/shadow"}))),
        ("body", signed(asked(body={"question": "explain"}))),
        ("unknown", signed(follow_up(asked(), "resume", [AGENT], NOW))),
        ("malformed", b""),
        ("malformed", canonical({"signed": {**asked().document(), "agents": {"a": 1}}, "signature": "YQ=="})),
        ("malformed", b"[" * 100_000),
        ("malformed", b"x" * (MAX_REQUEST + 1)),
        ("malformed", signed(asked()) + b" "),
    ],
)
def test_refused(kind: str, data: bytes) -> None:
    """Each by the check that is for it."""
    assert refused(data) == kind


def test_by_what_the_host_knows() -> None:
    """A nonce that was seen, metadata that have expired, no list of operators, an owner who allows nothing."""
    request = asked()
    data = signed(request)
    assert refused(data, seen=request.nonce) == "replayed"
    assert refused(data, host(trusted_until=NOW)) == "trust expired"
    assert refused(data, host(operators=None)) == "operator"
    assert refused(data, host(allow=())) == "not allowed"
    cancel = signed(follow_up(asked(), "cancel", [AGENT], NOW))
    assert decide(cancel, kind="ask").kind == "cancel"
    assert refused(cancel, kind="do") == "role"  # nobody stops what they could not have asked


def test_every_field_is_signed() -> None:
    """A change of any field of a signed request is refused, also one that the signature is moved to."""
    good = json.loads(signed(asked()))
    other = {
        "format": 2, "fleet": "ships", "id": "0" * 32, "kind": "do", "body": {"question": "rules"},
        "agents": [AGENT, "linz-1"], "group": "all", "reason": "other", "operator": "ann",
        "created": "2026-11-21T02:41:13Z", "expires": "2026-11-21T03:41:15Z", "nonce": "0" * 32,
    }  # fmt: skip
    assert other.keys() == good["signed"].keys()
    for key, value in other.items():
        assert refused(canonical({**good, "signed": {**good["signed"], key: value}})) in ("malformed", "signature"), key
    elsewhere = KEYS["vera"].sign(canonical(good["signed"]))  # the same bytes, signed for another purpose
    assert DOMAIN not in canonical(good["signed"])
    assert refused(canonical({**good, "signature": base64.b64encode(elsewhere).decode()})) == "signature"


def test_document_of_operators() -> None:
    """It comes back from its bytes as it was; mistakes and other fleets are refused."""
    data = OPERATORS.to_bytes()
    assert read_operators(data, "plants") == OPERATORS
    assert read_operators(data, "plants").same(replace(OPERATORS, serial=9))
    with pytest.raises(DocumentRefused, match="for fleet 'plants'"):
        read_operators(data, "ships")
    document = json.loads(data)
    for change in ({"roles": ["root"]}, {"key": "ed25519:AAAA"}, {"expires": "soon"}, {"name": "a b"}, {"more": 1}):
        row = {**document["operators"][0], **change}
        with pytest.raises(DocumentRefused, match=r"operators\[0\]"):
            read_operators(canonical({**document, "operators": [row]}), "plants")


def test_nonces_outlive_restarts(tmp_path: Path) -> None:
    """A request is taken once, also by the agent's next life, until it expires; then its age refuses it, and its nonce
    is forgotten once somebody has signed something later."""
    now = [NOW]
    request = asked()
    spool = spooled(tmp_path, lambda: now[0])
    spool.take(request, signed(request))
    spool.drop(request.id)
    assert spooled(tmp_path, lambda: now[0]).seen(request.nonce)
    (tmp_path / "nonces").unlink()
    spool = spooled(tmp_path, lambda: now[0])
    held = spool.take(request, signed(request))
    (tmp_path / "nonces").unlink()  # killed before it was written: the request itself says it
    again = spooled(tmp_path, lambda: now[0])
    assert again.seen(request.nonce)
    assert again.held[request.id].request == read(signed(request))[0] == held.request
    with pytest.raises(Refused) as caught:
        again.take(request, signed(request))
    assert caught.value.kind == "replayed"
    now[0] = request.expires + HOUR
    assert again.expired() == [request.id]
    again.drop(request.id)
    later = asked(created=now[0], expires=now[0] + HOUR)
    spool = spooled(tmp_path, lambda: now[0])
    assert spool.seen(request.nonce)
    spool.take(later, signed(later))
    spool = spooled(tmp_path, lambda: now[0])
    assert (spool.seen(request.nonce), spool.seen(later.nonce)) == (False, True)
    assert refused(signed(request), host(clock=lambda: now[0])) == "expired"


def test_what_is_taken_is_on_disk(tmp_path: Path, synced: Synced) -> None:
    """The request, its folder's name and its nonce: no power cut lets it be taken again."""
    folder, request = tmp_path / "requests", asked()
    spool = Spool(folder, SignedTime(tmp_path / "time", lambda: NOW))
    synced.clear()
    spool.take(request, signed(request))
    assert synced[folder] == sorted(os.listdir(folder)) == sorted(["nonces", request.id])
    assert synced[folder / "nonces"] == (folder / "nonces").read_bytes()
    assert synced[folder / request.id / ".request.json.tmp"] == signed(request)


def test_a_cancel_outlives_its_own_expiry(tmp_path: Path) -> None:
    """What was cancelled before it came is refused for as long as a request may live."""
    now = [NOW]
    request = asked(expires=NOW + MAX_LIFE)
    cancel = follow_up(request, "cancel", [AGENT], NOW)
    spool = spooled(tmp_path, lambda: now[0])
    spool.note(cancel, request.id)
    now[0] = cancel.expires + HOUR
    later = asked(created=now[0], expires=now[0] + HOUR)
    spool.take(later, signed(later))
    spool = spooled(tmp_path, lambda: now[0])
    assert not spool.seen(cancel.nonce)
    with pytest.raises(Refused) as caught:
        spool.take(request, signed(request))
    assert caught.value.kind == "cancelled"


def test_room_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond its bounds the spool refuses, and says so."""
    monkeypatch.setattr("vedette.fleet.spool.MAX_REQUESTS", 2)
    monkeypatch.setattr("vedette.fleet.spool.MAX_NONCES", 3)
    spool = spooled(tmp_path)
    for _ in range(2):
        request = asked()
        spool.take(request, signed(request))
    with pytest.raises(Refused, match="under way"):
        spool.take(asked(), b"")
    spool.note(asked())
    with pytest.raises(Refused, match="nonce"):
        spool.note(asked())


def test_no_operators_without_a_document() -> None:
    assert refused(signed(asked()), host(operators=Operators("plants", 1))) == "operator"
