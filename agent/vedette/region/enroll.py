"""Who belongs to the region: certificates and the broker's access list, in one folder.

    FOLDER/
      ca.pem  ca.key            the authority; the key (0600) does not leave this folder
      members.json              who was enrolled: the one source of all that follows
      site.key                  signs the site's part of installation zips (0600; ``sitezip``)
      mosquitto.acl             who may read and write which topics, a section per member
      crl.pem                   the certificates that were revoked
      receipt.key               (0600) signs receipts; made with the first landing
      members/NAME/             what goes to its host: agent.pem, agent.key (0600), region-ca.pem, and for an agent
                                vedette.toml, its lines of configuration; for a landing receipt.key

Promises:

* The access list names every member by itself, with its fleet: an agent publishes only under its own id and reads only
  what is sent to it, and no pattern lets it choose a fleet. The name of a member is the common name of its certificate.
* Enrolled again, a member keeps key and certificate while the certificate is good for ``RENEW_DAYS`` more, and gets new
  ones after that; the files made from ``members.json`` are written anew each time. Killed between two steps: run it
  again.
* A renewal leaves the certificate before it good until its end, so that the host may go on with it until it has the
  new one.
* A revoked member is out of the access list, and all its certificates that have not ended, renewed ones too, are in the
  list of revoked ones for good.
* Landings share the alerts by a subscription group whose name is random: mosquitto 2.0 lets anybody subscribe to
  anything, and only delivers nothing that the list forbids, so that a member who knew the group could make alerts
  vanish into it (they would be sent again, later).

One process at a time: the folder is locked.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from vedette.delivery.topics import ROOT, agent_topic
from vedette.region.authority import MAX_NAME, Authority, key_pem, new_key
from vedette.region.sign import load_key, public_text, read_private
from vedette.system.durable import sync_path, write_whole

DAYS = 365
RENEW_DAYS = 30
RECEIPT_KEY = "receipt.key"
ROLES = ("agent", "landing", "operator", "broker")
_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_NAME}}}")
_RESERVED = ("bundles",)
"""Names that topics give another meaning."""


@dataclass(slots=True)
class Member:
    """One enrolled name; times are seconds since 1970, serials decimal texts."""

    name: str
    role: str = "agent"
    fleet: str = "default"
    hosts: list[str] = field(default_factory=list)
    serial: str = ""
    ends: int = 0
    revoked: list[tuple[str, int]] = field(default_factory=list)
    """Serials of certificates that hold no longer, and since when."""
    active: bool = True
    former: list[tuple[str, int]] = field(default_factory=list)
    """Serials of certificates that were renewed and still hold, and their ends."""


@dataclass(frozen=True, slots=True)
class Enrolled:
    """What ``Region.enroll`` did: the member's folder, and whether it has a new certificate."""

    folder: Path
    member: Member
    renewed: bool


@dataclass(slots=True)
class Region:
    """The folder, open and locked: ``with Region.open(folder) as region``."""

    folder: Path
    authority: Authority
    broker: str
    group: str
    members: dict[str, Member]

    @classmethod
    @contextmanager
    def open(cls, folder: Path, *, now: datetime | None = None) -> Iterator[Region]:
        """Take the authority that is there, or make one where there is none.

        Raises PermissionError for a key that others may reach, BlockingIOError while another process is at work,
        ValueError when a file is not what it should be, OSError.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BlockingIOError(f"{folder}: another `vedette member` command is at work here") from error
            authority = _authority(folder, now or datetime.now(UTC))
            yield cls(folder, authority, *_members(folder / "members.json"))
        finally:
            os.close(descriptor)

    def enroll(
        self,
        name: str,
        *,
        role: str = "agent",
        fleet: str = "default",
        hosts: Sequence[str] = (),
        days: int = DAYS,
        renew: bool = False,
        now: datetime | None = None,
    ) -> Enrolled:
        """Give ``name`` its certificate, its section of the access list and its files.

        Raises ValueError for a name that cannot be used, or that is enrolled for something else; OSError.
        """
        now = now or datetime.now(UTC)
        self._check(name, role, fleet, hosts)
        member = self.members.get(name) or Member(name)
        if member.serial and member.active and (member.role, member.fleet) != (role, fleet):
            raise ValueError(
                f"{name} is enrolled as {member.role} of fleet {member.fleet}: revoke it first, or choose another name"
            )
        folder = self.folder / "members" / name
        cert, key = folder / "agent.pem", folder / "agent.key"
        due = now + timedelta(days=RENEW_DAYS) >= datetime.fromtimestamp(member.ends, UTC)
        whole = _serial(cert, key) == member.serial
        anew = renew or due or not whole or not member.active or (role == "broker" and list(hosts) != member.hosts)
        member.role, member.fleet, member.hosts, member.active = role, fleet, list(hosts), True
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_path(folder.parent)
        if anew:
            private = new_key()
            certificate = self.authority.issue(name, private.public_key(), now, days, hosts)
            if member.serial and member.serial not in [serial for serial, _ in member.revoked]:
                member.former.append((member.serial, member.ends))
            member.former = [(serial, ends) for serial, ends in member.former if ends > now.timestamp()]
            member.serial = str(certificate.serial_number)
            member.ends = int(certificate.not_valid_after_utc.timestamp())
            self.members[name] = member
            self._save_members()  # before it is given out: what is not known here cannot be revoked
            write_whole(key, key_pem(private), 0o600)
            write_whole(cert, certificate.public_bytes(Encoding.PEM), 0o644)
        self.members[name] = member
        write_whole(folder / "region-ca.pem", self.authority.pem(), 0o644)
        if role == "landing":
            if not (self.folder / RECEIPT_KEY).exists():
                write_whole(self.folder / RECEIPT_KEY, key_pem(Ed25519PrivateKey.generate()), 0o600)
            write_whole(folder / RECEIPT_KEY, (self.folder / RECEIPT_KEY).read_bytes(), 0o600)
        if role == "agent":
            write_whole(folder / "vedette.toml", self._configuration(member).encode(), 0o644)
        self._save(now)
        return Enrolled(folder, member, anew)

    def member(self, name: str) -> Member:
        """Who is enrolled as ``name``. Raises ValueError when nobody is."""
        member = self.members.get(name)
        if member is None or not member.active:
            raise ValueError(f"{name} is not enrolled in {self.folder}")
        return member

    def revoke(self, name: str, *, now: datetime | None = None) -> Member:
        """Take ``name`` out: certificates are revoked, rights are gone. Raises ValueError for an unknown name."""
        now = now or datetime.now(UTC)
        member = self.members.get(name)
        if member is None:
            raise ValueError(f"{name} is not enrolled in {self.folder}")
        if member.active:
            since = int(now.timestamp())
            held = [serial for serial, ends in member.former if ends > since]
            member.revoked += [(serial, since) for serial in (*held, member.serial)]
            member.active, member.former = False, []
        self._save(now)
        return member

    def access(self) -> str:
        """The text of mosquitto.acl."""
        lines = [
            '# Written by "vedette member enroll": who may read and write which topics. "user" is a common name.',
            "# No line stands before the first user: whoever is not named here may nothing.",
        ]
        for member in sorted(self.members.values(), key=lambda one: one.name):
            rights = _rights(member) if member.active else []
            if rights:
                lines += ["", f"# {member.role} of fleet {member.fleet}", f"user {member.name}"]
                lines += [f"topic {how} {topic}" for how, topic in rights]
        return "\n".join(lines) + "\n"

    def _check(self, name: str, role: str, fleet: str, hosts: Sequence[str]) -> None:
        for what, text in (("name", name), ("fleet", fleet)):
            if not _NAME.fullmatch(text) or text in _RESERVED:
                raise ValueError(
                    f"{what} {text!r}: expects 1 to {MAX_NAME} letters, digits, '.', '_' or '-', not {_RESERVED[0]!r}"
                )
        if role not in ROLES:
            raise ValueError(f"role {role!r}: expects one of {', '.join(ROLES)}")
        if (role == "broker") != bool(hosts):
            raise ValueError("a broker needs the host names under which it is reached, and nobody else has any")
        if role == "agent" and not self.broker:
            raise ValueError("where is the region's broker? Give its address once, such as mqtts://region.example:8883")

    def _configuration(self, member: Member) -> str:
        path = self.folder / RECEIPT_KEY
        signed = f'receipt_keys = ["{public_text(load_key(path))}"]\n' if path.exists() else ""
        return (
            f'[agent]\nid = "{member.name}"\nfleet = "{member.fleet}"\n\n'
            f'[broker]\nurl = "{self.broker}"\n'
            'ca_file = "/etc/vedette/region-ca.pem"\n'
            'cert_file = "/etc/vedette/agent.pem"\n'
            'key_file = "/etc/vedette/agent.key"\n\n'
            f'[uplink]\ntype = "mqtt"\n{signed}'
        )

    def _save(self, now: datetime) -> None:
        self._save_members()
        write_whole(self.folder / "mosquitto.acl", self.access().encode(), 0o640)
        revoked = [
            (int(serial), datetime.fromtimestamp(since, UTC))
            for member in self.members.values()
            for serial, since in member.revoked
        ]
        write_whole(self.folder / "crl.pem", self.authority.revoked(revoked, now), 0o644)

    def _save_members(self) -> None:
        known = {"broker": self.broker, "group": self.group, "members": [asdict(m) for m in self.members.values()]}
        write_whole(self.folder / "members.json", json.dumps(known, indent=1).encode() + b"\n", 0o600)


def _rights(member: Member) -> list[tuple[str, str]]:
    """What a member may: "read", "write" or "readwrite", and the topic filter."""
    fleet, name = member.fleet, member.name
    match member.role:
        case "agent":
            return [
                *(("write", agent_topic(fleet, name, leaf)) for leaf in ("alerts", "status", "replies")),
                *(("read", agent_topic(fleet, name, leaf)) for leaf in ("receipts", "commands")),
                ("read", f"{ROOT}/{fleet}/bundles/#"),
            ]
        case "landing":
            return [
                ("read", f"{ROOT}/+/+/alerts"),
                ("read", f"{ROOT}/+/+/status"),
                ("write", f"{ROOT}/+/+/receipts"),
            ]
        case "operator":
            return [
                ("readwrite", f"{ROOT}/+/bundles/#"),
                ("write", f"{ROOT}/+/+/commands"),
                ("read", f"{ROOT}/+/+/replies"),
                ("read", f"{ROOT}/+/+/status"),
            ]
        case _:
            return []


def _authority(folder: Path, now: datetime) -> Authority:
    key, cert = folder / "ca.key", folder / "ca.pem"
    if not key.exists() and not cert.exists():
        made = Authority.create(f"vedette region {secrets.token_hex(4)}", now)
        write_whole(cert, made.pem(), 0o644)
        write_whole(key, key_pem(made.key), 0o600)
        return made
    try:
        return Authority.from_pem(read_private(key), cert.read_bytes())
    except (ValueError, TypeError) as error:
        raise ValueError(f"{key} and {cert} are no authority's key and certificate: {error}") from error


def _members(path: Path) -> tuple[str, str, dict[str, Member]]:
    """The broker's address, the landings' group and the members of ``members.json``; no broker, a new group's name and
    nobody when there is none. Raises ValueError."""
    if not path.exists():
        return "", f"landing-{secrets.token_hex(8)}", {}
    try:
        known = json.loads(path.read_bytes())
        members = [Member(**row) for row in known["members"]]
        for member in members:
            member.revoked = [(str(int(serial)), int(since)) for serial, since in member.revoked]
            member.former = [(str(int(serial)), int(ends)) for serial, ends in member.former]
        return str(known["broker"]), str(known["group"]), {member.name: member for member in members}
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} cannot be read ({error}): restore it, certificates and access need it") from error


def _serial(cert: Path, key: Path) -> str:
    """The serial number of a certificate whose key is there; empty when one lacks or they do not fit."""
    try:
        certificate = x509.load_pem_x509_certificate(cert.read_bytes())
        private = load_pem_private_key(key.read_bytes(), password=None)
    except (OSError, ValueError, TypeError):
        return ""
    return str(certificate.serial_number) if private.public_key() == certificate.public_key() else ""
