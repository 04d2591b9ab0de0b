"""Who belongs to the region: certificates and the broker's access list, in one folder.

    FOLDER/
      ca.pem  ca.key            the authority; the key (0600) does not leave this folder
      former/N.pem  N.key       authorities before it that are still trusted (``rotate``, ``retire``)
      members.json              who was enrolled: the one source of all that follows
      tokens.json               who may enrol by itself (0600; ``tokens``)
      audit.jsonl               every enrolment, renewal, revocation (``fleet/audit.py``)
      site.key                  signs the site's part of installation zips (0600; ``sitezip``)
      mosquitto.acl             who may read and write which topics, a section per member
      mosquitto.passwd          for the broker: hosts without a certificate may only ask for one
      crl.pem                   the certificates that were revoked
      receipt.key               (0600) signs receipts; made with the first landing
      members/NAME/             what goes to its host: agent.pem, agent.key (0600), region-ca.pem, and for an agent
                                vedette.toml, its lines of configuration; for a landing receipt.key. Of an agent that
                                enrolled by a token agent.pem alone: its key was made on its host and stays there

Promises:

* The access list names every member by itself, with its fleet: an agent publishes only under its own id and reads only
  what is sent to it, and no pattern lets it choose a fleet. The name of a member is the common name of its certificate.
* Enrolled again, a member keeps key and certificate while the certificate is good for ``RENEW_DAYS`` more, and gets new
  ones after that; the files made from ``members.json`` are written anew each time. Killed between two steps: run it
  again.
* A renewal leaves the certificate before it good until its end, so that the host may go on with it until it has the
  new one.
* ``admit`` gives a certificate for a key that was made elsewhere, to a new name or to the same key again; to an
  enrolled or revoked name with another key only with an operator's consent (``consent``), which counts once.
* A member's certificate is good under the authority that signed it and under those that came after: two overlap until
  ``retire``, which refuses while a member still needs the former one.
* A revoked member is out of the access list, and all its certificates that have not ended, renewed ones too, are in the
  list of revoked ones for good.
* Landings share the alerts by a subscription group whose name is random: mosquitto 2.0 lets anybody subscribe to
  anything, and only delivers nothing that the list forbids, so that a member who knew the group could make alerts
  vanish into it (they would be sent again, later).

One process at a time: the folder is locked.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from vedette.delivery.topics import CLIENTS
from vedette.fleet.audit import Audit
from vedette.fleet.certificates import fingerprint, key_pem, new_key
from vedette.model.times import MAX_SKEW
from vedette.region.authorities import Authorities
from vedette.region.authority import MAX_NAME
from vedette.region.members import ROLES, SITE, Member, access, check_site, dump, load, password_file
from vedette.region.sign import load_key, public_text
from vedette.system.durable import sync_path, write_whole
from vedette.system.terminal import safe
from vedette.system.within import is_name

DAYS = 365
RENEW_DAYS = 30
CONSENT_SECONDS = 24 * 3600
"""For which an operator's consent to enrol a name again holds."""
MAX_FORMER = 32
"""Certificates of a member that hold beside its newest: a renewal is due once in months."""
LOCK_SECONDS = 30.0
"""For another command, or the enroller, that works in the folder."""
RECEIPT_KEY = "receipt.key"
_RESERVED = ("bundles", "enrolment", "steer", "tuf")
"""Names that topics give another meaning."""


@dataclass(frozen=True, slots=True)
class Enrolled:
    """What ``Region.enroll`` did: the member's folder, and whether it has a new certificate."""

    folder: Path
    member: Member
    renewed: bool


def _lock(descriptor: int, folder: Path) -> None:
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > until:
                raise BlockingIOError(f"{folder}: another `vedette member` command is at work here") from error
        time.sleep(0.05)


@dataclass(slots=True)
class Region:
    """The folder, open and locked: ``with Region.open(folder) as region``."""

    folder: Path
    authorities: Authorities
    broker: str
    group: str
    members: dict[str, Member]

    @classmethod
    @contextmanager
    def open(cls, folder: Path, *, now: datetime | None = None) -> Iterator[Region]:
        """Take the authority that is there, or make one where there is none.

        Raises PermissionError for a key that others may reach, BlockingIOError when another process is at work
        for LOCK_SECONDS, ValueError when a file is not what it should be, OSError.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _lock(descriptor, folder)
            authorities = Authorities.open(folder, now or datetime.now(UTC))
            yield cls(folder, authorities, *load(folder / "members.json"))
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
        if member.key and member.active:
            raise ValueError(f"{name} made its key on its own host and renews its certificate by itself")
        member.key = ""
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
            certificate = self._issue(member, private.public_key(), now, days)
            write_whole(key, key_pem(private), 0o600)
            write_whole(cert, certificate.public_bytes(Encoding.PEM), 0o644)
        self.members[name] = member
        write_whole(folder / "region-ca.pem", self.authorities.pem(), 0o644)
        if role == "landing":
            if not (self.folder / RECEIPT_KEY).exists():
                write_whole(self.folder / RECEIPT_KEY, key_pem(Ed25519PrivateKey.generate()), 0o600)
            write_whole(folder / RECEIPT_KEY, (self.folder / RECEIPT_KEY).read_bytes(), 0o600)
        if role == "agent":
            write_whole(folder / "vedette.toml", self._configuration(member).encode(), 0o644)
        self._save(now)
        return Enrolled(folder, member, anew)

    def admit(
        self,
        name: str,
        public: ec.EllipticCurvePublicKey,
        *,
        fleet: str,
        labels: Mapping[str, str],
        machine: str = "",
        token: str = "",
        version: str = "",
        days: int = DAYS,
        now: datetime | None = None,
    ) -> bytes:
        """The certificate (PEM) of the agent ``name`` for its own ``public`` key; the one that it has, if it is the
        same key. ``version``: of its program, for the record. Raises ValueError with the reason why not; OSError."""
        now = now or datetime.now(UTC)
        self._check(name, "agent", fleet, ())
        member, key = self.members.get(name) or Member(name), fingerprint(public)
        if member.serial and (member.role, member.fleet) != ("agent", fleet):
            raise ValueError(f"{name} is {member.role} of fleet {member.fleet}: choose another name")
        if member.active and member.key == key and (held := self._held(member)):
            return held
        if key in member.dropped:
            raise ValueError(f"{name}: the certificates of this key were revoked: remove agent.key on its host")
        left = member.consent - now.timestamp()  # more than were given: under a clock that was ahead
        allowed = 0 < left <= CONSENT_SECONDS + MAX_SKEW / 1e6
        if member.serial and not (member.active and member.key == key) and not allowed:
            state = "is enrolled with another key" if member.active else "was revoked"
            raise ValueError(
                f"{name} {state}: 'vedette member allow {name}' lets it enrol again within 24 hours; or choose another"
                " name (agent.id)"
            )
        if member.serial and member.key != key:
            self._drop(member, int(now.timestamp()))
        member.active, member.fleet, member.key, member.consent = True, fleet, key, 0
        member.labels, member.machine, member.token = dict(labels), machine, token
        return self._give(member, public, now, days, "enrolled", token=token, machine=machine, version=version)

    def renew(self, name: str, public: ec.EllipticCurvePublicKey, *, days: int, now: datetime | None = None) -> bytes:
        """The next certificate (PEM) of an agent whose keys are made on its host; the one that it has, if it is the
        same key. Raises ValueError with the reason why not; OSError."""
        now = now or datetime.now(UTC)
        self.check_name(name=name)
        member, key = self.member(name), fingerprint(public)
        if not member.key:
            raise ValueError(f"{name} has a key that was made by the region: 'vedette member renew {name}'")
        if member.key == key and (held := self._held(member)):
            return held
        if sum(ends > now.timestamp() for _, ends in member.former) >= MAX_FORMER:
            raise ValueError(f"{name} has {MAX_FORMER} certificates beside its newest that hold: revoke and enrol it")
        member.key = key
        return self._give(member, public, now, days, "renewed")

    def certificate(self, name: str) -> bytes:
        """The newest certificate (PEM) of ``name``. Raises ValueError where its file is not to be read."""
        try:
            return (self.folder / "members" / name / "agent.pem").read_bytes()
        except OSError as error:  # a member's own trouble, and nobody else's
            raise ValueError(f"the certificate of {name} cannot be read: {error}: restore it") from error

    def _held(self, member: Member) -> bytes:
        """The newest certificate (PEM) of ``member``; empty: a kill came before it was written, or its file is gone."""
        with suppress(OSError, ValueError):
            pem = (self.folder / "members" / member.name / "agent.pem").read_bytes()
            if str(x509.load_pem_x509_certificate(pem).serial_number) == member.serial:
                return pem
        return b""

    def consent(self, name: str, *, now: datetime | None = None) -> Member:
        """Another key may enrol as ``name``, once, within CONSENT_SECONDS. Raises ValueError for an unknown name."""
        if (member := self.members.get(name)) is None:
            raise ValueError(f"{safe(name)} is not enrolled in {self.folder}")
        member.consent = int((now or datetime.now(UTC)).timestamp()) + CONSENT_SECONDS
        self._save_members()
        self.audit("enrolment_allowed", name=name, until=member.consent)
        return member

    def move(self, name: str, site: str) -> Member:
        """The agent ``name`` is at ``site`` from now on. Raises ValueError for who is no agent here, or no site."""
        member = self.member(name)
        if member.role != "agent":
            raise ValueError(f"{name} is enrolled as {member.role}: only agents are at a site")
        check_site(site)
        former = member.labels.get(SITE, "")
        member.labels[SITE] = site
        self._save_members()
        self.audit("moved", name=name, site=site, former=former)
        return member

    def rotate(self, *, now: datetime | None = None) -> None:
        """Make a new authority, which signs from now on; those before it stay trusted until ``retire``."""
        now = now or datetime.now(UTC)
        self.authorities.rotate(now)
        self._spread(now)
        self.audit("authority_made", authority=self.authorities.newest.name)

    def retire(self, *, now: datetime | None = None) -> None:
        """Trust the newest authority alone. Raises ValueError with the members whose certificates need another one."""
        now = now or datetime.now(UTC)
        need = [
            member.name
            for member in self.members.values()
            if member.active and not self.authorities.signed(self.folder / "members" / member.name / "agent.pem")
        ]
        if need:
            raise ValueError(f"{', '.join(sorted(need)[:20])}: their certificates are signed by a former authority")
        self.authorities.retire()
        self._spread(now)
        self.audit("authorities_retired", authority=self.authorities.newest.name)

    def audit(self, event: str, **facts: object) -> None:
        """A line of the audit record. Raises OSError."""
        Audit(self.folder / "audit.jsonl").append(event, **facts)

    def member(self, name: str) -> Member:
        """Who is enrolled as ``name``. Raises ValueError when nobody is."""
        member = self.members.get(name)
        if member is None or not member.active:
            raise ValueError(f"{safe(name)} is not enrolled in {self.folder}")
        return member

    def revoke(self, name: str, *, now: datetime | None = None) -> Member:
        """Take ``name`` out: certificates are revoked, rights are gone. Raises ValueError for an unknown name."""
        now = now or datetime.now(UTC)
        member = self.members.get(name)
        if member is None:
            raise ValueError(f"{safe(name)} is not enrolled in {self.folder}")
        if member.active:
            self._drop(member, int(now.timestamp()))
            member.active, member.consent = False, 0
            self.audit("revoked", name=name)
        self._save(now)
        return member

    def _drop(self, member: Member, since: int) -> None:
        """All certificates of ``member`` that have not ended are revoked."""
        held = [serial for serial, ends in member.former if ends > since]
        listed = {serial for serial, _ in member.revoked}
        member.revoked += [(serial, since) for serial in (*held, member.serial) if serial not in listed]
        member.former = []
        if member.key and member.key not in member.dropped:
            member.dropped.append(member.key)

    def _issue(
        self, member: Member, public: ec.EllipticCurvePublicKey, now: datetime, days: int, event: str = "",
        **facts: str,
    ) -> x509.Certificate:  # fmt: skip
        """The next certificate of ``member``, recorded before it is given out: an unknown one could not be revoked.
        ``event``: its line of the audit record, written first: a kill leaves a line without a certificate, and no
        certificate without its line."""
        certificate = self.authorities.newest.issue(member.name, public, now, days, member.hosts)
        if event:
            self.audit(event, name=member.name, fleet=member.fleet, serial=str(certificate.serial_number), **facts)
        if member.serial and member.serial not in [serial for serial, _ in member.revoked]:
            member.former.append((member.serial, member.ends))
        member.former = [(serial, ends) for serial, ends in member.former if ends > now.timestamp()]
        member.serial = str(certificate.serial_number)
        member.ends = int(certificate.not_valid_after_utc.timestamp())
        self.members[member.name] = member
        self._save_members()
        return certificate

    def _give(
        self, member: Member, public: ec.EllipticCurvePublicKey, now: datetime, days: int, event: str, **facts: str
    ) -> bytes:
        folder = self.folder / "members" / member.name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "agent.key").unlink(missing_ok=True)
        pem = self._issue(member, public, now, days, event, **facts).public_bytes(Encoding.PEM)
        write_whole(folder / "agent.pem", pem, 0o644)
        return pem

    def _spread(self, now: datetime) -> None:
        for member in self.members.values():
            if member.active and (folder := self.folder / "members" / member.name).exists():
                write_whole(folder / "region-ca.pem", self.authorities.pem(), 0o644)
        self._save(now)

    def check_name(self, **names: str) -> None:
        """Raises ValueError for a name that topics cannot hold; each is given under what it names."""
        for what, text in names.items():
            if not is_name(text, MAX_NAME) or text in _RESERVED:
                reserved = ", ".join(_RESERVED)
                raise ValueError(
                    f"{what} {text!r}: expects 1 to {MAX_NAME} letters, digits, '.', '_' or '-', no dot at the"
                    f" beginning, not {reserved}"
                )

    def _check(self, name: str, role: str, fleet: str, hosts: Sequence[str]) -> None:
        self.check_name(name=name, fleet=fleet)
        if name.startswith(CLIENTS) and name not in self.members:
            raise ValueError(
                f"name {name!r}: client ids of hosts that enrol begin with {CLIENTS!r}: choose another name"
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
        self.publish_access(now)

    def publish_access(self, now: datetime | None = None) -> None:
        """Write what the broker reads: the access list and the list of revoked certificates."""
        now = now or datetime.now(UTC)
        if not (self.folder / "mosquitto.passwd").exists():
            write_whole(self.folder / "mosquitto.passwd", password_file(), 0o640)
        write_whole(self.folder / "mosquitto.acl", access(self.members.values()).encode(), 0o640)
        revoked = [
            (int(serial), datetime.fromtimestamp(since, UTC))
            for member in self.members.values()
            for serial, since in member.revoked
        ]
        write_whole(self.folder / "crl.pem", self.authorities.revoked(revoked, now), 0o644)

    def _save_members(self) -> None:
        data = dump(self.broker, self.group, self.members.values())
        write_whole(self.folder / "members.json", data, 0o600)


def _serial(cert: Path, key: Path) -> str:
    """The serial number of a certificate whose key is there; empty when one lacks or they do not fit."""
    try:
        certificate = x509.load_pem_x509_certificate(cert.read_bytes())
        private = load_pem_private_key(key.read_bytes(), password=None)
    except (OSError, ValueError, TypeError):
        return ""
    return str(certificate.serial_number) if private.public_key() == certificate.public_key() else ""
