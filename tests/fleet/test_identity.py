"""The folder of a host's identity: nothing that does not fit is put in force, and no kill leaves half of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from tests.fleet.conftest import Synced
from vedette.fleet import identity as module
from vedette.fleet.certificates import requested_key, signed_by
from vedette.fleet.enrolment import Answer, EnrolmentRefused, Renewal, read_renewal_request
from vedette.fleet.identity import Identity
from vedette.region.authority import Authority

NOW = datetime.now(UTC)
CENTRE, FOREIGN = Authority.create("region a", NOW), Authority.create("region b", NOW)


def issued(csr: str, by: Authority = CENTRE, name: str = "web-1", days: int = 90) -> str:
    return by.issue(name, requested_key(csr), NOW, days).public_bytes(Encoding.PEM).decode()


def answer(csr: str, by: Authority = CENTRE, name: str = "web-1", **more: Any) -> Answer:
    return Answer("0" * 32, issued(csr, by, name), CENTRE.pem().decode(), **more)


@pytest.fixture
def host(tmp_path: Path) -> Identity:
    made = Identity(tmp_path / "identity", "web-1")
    made.take(answer(made.request_csr()), "plants")
    return made


def test_enrolled(host: Identity) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in host.folder.iterdir()}
    assert modes["agent.key"] == 0o600
    assert host.enrolled
    assert stat.S_IMODE(host.folder.stat().st_mode) == 0o700
    life = timedelta(days=90)
    assert abs(host.renew_after() - (NOW + life * 2 / 3)) < timedelta(hours=1)


def test_what_was_taken_is_on_disk(tmp_path: Path, synced: Synced) -> None:
    """Each file was synced whole before it got its name, and the names after."""
    folder = tmp_path / "identity"
    host = Identity(folder, "web-1")
    host.take(answer(host.request_csr(), files={"root.json": "{}"}), "plants")
    written = {folder / f".{path.name}.tmp": path.read_bytes() for path in folder.iterdir()}
    assert synced == {**written, folder: sorted(os.listdir(folder))}


def test_the_key_stays_until_an_answer_comes(tmp_path: Path) -> None:
    asked = [requested_key(Identity(tmp_path, "web-1").request_csr()).public_numbers() for _ in range(3)]
    assert asked[0] == asked[1] == asked[2]


def test_what_does_not_fit_is_not_put_in_force(tmp_path: Path) -> None:
    made = Identity(tmp_path / "identity", "web-1")
    csr, other = made.request_csr(), Identity(tmp_path / "other", "web-1").request_csr()
    expired = CENTRE.issue("web-1", requested_key(csr), NOW - timedelta(days=3), 2).public_bytes(Encoding.PEM).decode()
    for wrong, reason in (
        (Answer("0" * 32, refused="the token is expired"), "the token is expired"),
        (answer(other), "another key"),
        (answer(csr, name="web-2"), "is for web-2"),
        (answer(csr, by=FOREIGN), "not signed by an authority"),
        (answer(csr, files={"agent.pem": "x"}), "a file of the name 'agent.pem'"),
        (answer(csr, files={"../x.json": "x"}), "a file of the name"),
        (Answer("0" * 32, expired, CENTRE.pem().decode()), "clock"),
        (Answer("0" * 32, "no certificate", CENTRE.pem().decode()), "PEM"),
    ):
        with pytest.raises(EnrolmentRefused, match=reason):
            made.take(wrong, "plants")
        assert not made.enrolled


def renewal(
    host: Identity, by: Authority = CENTRE, authorities: bytes | None = None, signer: Authority = CENTRE
) -> Renewal:
    csr, signature = read_renewal_request(host.renewal_request())
    assert signed_by(csr.encode(), signature, (host.folder / "agent.pem").read_bytes())
    trusted = CENTRE.pem() if authorities is None else authorities
    return Renewal(issued(csr, by), trusted.decode(), signer.sign(trusted))


def test_renewed(host: Identity) -> None:
    before = host.certificate().serial_number
    new = renewal(host)
    assert host.renew(new)
    assert host.certificate().serial_number != before
    _holds(host)
    assert not host.renew(new)  # retained, it comes again at each connection
    assert host.certificate().public_key() != requested_key(read_renewal_request(host.renewal_request())[0])


def test_authorities_change_only_by_one_that_is_trusted(host: Identity) -> None:
    both = FOREIGN.pem() + CENTRE.pem()
    with pytest.raises(EnrolmentRefused, match="has signed the new authorities"):
        host.renew(renewal(host, FOREIGN, both, signer=FOREIGN))
    assert (host.folder / "region-ca.pem").read_bytes() == CENTRE.pem()
    assert host.renew(renewal(host, FOREIGN, both, signer=CENTRE))
    assert (host.folder / "region-ca.pem").read_bytes() == both
    held = Renewal((host.folder / "agent.pem").read_text(), FOREIGN.pem().decode(), FOREIGN.sign(FOREIGN.pem()))
    assert host.renew(held)
    assert (host.folder / "region-ca.pem").read_bytes() == FOREIGN.pem()


@contextmanager
def killed(monkeypatch: pytest.MonkeyPatch, step: int) -> Iterator[None]:
    """Nothing is written or renamed from the ``step``-th time on; what has fewer steps comes to its end."""
    count = 0

    def counted(call: Callable[..., object]) -> Callable[..., object]:
        def run(*arguments: object) -> object:
            nonlocal count
            count += 1
            if count >= step:
                raise KeyboardInterrupt
            return call(*arguments)

        return run

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(module, "write_whole", counted(module.write_whole))
        patch.setattr(Path, "rename", counted(Path.rename))
        yield
        assert count < step


@pytest.mark.parametrize("step", range(1, 9))
def test_killed_between_two_steps_of_an_enrolment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """The host is enrolled when all that the region gave is there, else not; the same answer enrols it later."""
    host = Identity(tmp_path / "identity", "web-1")
    reply = answer(host.request_csr(), files={"root.json": "{}"})
    names = {"agent.key", "agent.pem", "region-ca.pem", "identity.json", "root.json"}
    with killed(monkeypatch, step):
        host.take(reply, "plants")
    written = {path.name for path in host.folder.iterdir()}
    assert not host.enrolled or names <= written
    host.take(reply, "plants")
    _holds(host)


@pytest.mark.parametrize("step", range(1, 6))
def test_killed_between_two_steps_of_a_renewal(host: Identity, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Key and certificate fit after the next start, and the renewal that was under way can be finished."""
    new = renewal(host, FOREIGN, FOREIGN.pem() + CENTRE.pem())
    with killed(monkeypatch, step):
        host.renew(new)
    again = Identity(host.folder, "web-1")
    again.settle()
    _holds(again)
    again.renew(new)
    _holds(again)
    assert again.certificate() == x509.load_pem_x509_certificate(new.certificate.encode())


def _holds(host: Identity) -> None:
    key = load_pem_private_key((host.folder / "agent.key").read_bytes(), None)
    assert key.public_key() == host.certificate().public_key()
    assert not (host.folder / "agent.pem.next").exists()
