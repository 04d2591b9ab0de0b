"""The members of a region, as ``members.json`` keeps them, and what the broker lets each of them do. Values only.

The access list names every member by itself, with its fleet. The file of members is the one source of the access list
and of the list of revoked certificates.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, structs

from vedette.delivery.topics import ENROLMENT, ROOT, agent_topic
from vedette.system import documents, foreign
from vedette.system.terminal import safe
from vedette.system.within import is_name

ROLES = ("agent", "landing", "operator", "analyst", "enroller", "broker")
SITE = "site"
"""The label that says at which site a member is."""


_Serial = Annotated[str, Meta(pattern=r"\A[0-9]+\Z", description="a decimal number as a text")]


class Member(Struct, forbid_unknown_fields=True):
    """One enrolled name; times are seconds since 1970, serials decimal texts."""

    name: str
    role: str = "agent"
    fleet: str = "default"
    hosts: list[str] = []
    serial: str = ""
    ends: int = 0
    revoked: list[tuple[_Serial, int]] = []
    """Serials of certificates that hold no longer, and since when."""
    active: bool = True
    former: list[tuple[_Serial, int]] = []
    """Serials of certificates that were renewed and still hold, and their ends."""
    key: str = ""
    """SHA-256 of the public key that was made on the host (``certificates.fingerprint``); empty: it was made here."""
    labels: dict[str, str] = {}
    machine: str = ""
    """Digest of the host's machine-id."""
    token: str = ""
    """The token by which it enrolled."""
    dropped: list[str] = []
    """Keys whose certificates were revoked; none of them enrols again."""
    consent: int = 0
    """Until when another key may enrol under this name."""


class _File(Struct):
    broker: str
    group: str
    members: list[Member]


def access(members: Iterable[Member]) -> str:
    """The text of mosquitto.acl."""
    lines = [
        '# Written by "vedette member enroll": who may read and write which topics. "user" is a common name.',
        "# Who is not named here may only ask to enrol, and read the answer under its client id, which nobody else",
        "# knows.",
        f"pattern read {ROOT}/{ENROLMENT}/answers/%c",
        "",
        f"user {ENROLMENT}",
        f"topic write {ROOT}/{ENROLMENT}/requests",
    ]
    for member in sorted(members, key=lambda member: member.name):
        rights = _rights(member) if member.active else []
        if rights:
            lines += ["", f"# {member.role} of fleet {member.fleet}", f"user {member.name}"]
            lines += [f"topic {how} {topic}" for how, topic in rights]
    return "\n".join(lines) + "\n"


def password_file() -> bytes:
    """Mosquitto's password file for hosts that enrol: ENROLMENT, whose password is the same word and no secret.

    It makes the broker refuse every other name that comes without a certificate. mosquitto_passwd(1), format 7:
    PBKDF2-SHA512, 101 rounds.
    """
    salt = secrets.token_bytes(12)
    digest = hashlib.pbkdf2_hmac("sha512", ENROLMENT.encode(), salt, 101)
    return f"{ENROLMENT}:$7$101${b64encode(salt).decode()}${b64encode(digest).decode()}\n".encode()


def check_site(site: str) -> None:
    """Raises ValueError for what agents and the console's grants could not call a site."""
    if not is_name(site):
        raise ValueError(f"site {safe(site)}: expects 1 to 128 letters, digits, '.', '_' or '-', no dot first")


def _rights(member: Member) -> list[tuple[str, str]]:
    """What a member may: "read", "write" or "readwrite", and the topic filter."""
    fleet, name = member.fleet, member.name
    match member.role:
        case "agent":
            return [
                *(("write", agent_topic(fleet, name, leaf)) for leaf in ("alerts", "status", "replies")),
                *(("read", agent_topic(fleet, name, leaf)) for leaf in ("receipts", "commands")),
                *(("read", f"{ROOT}/{fleet}/{below}/#") for below in ("bundles", "tuf")),
                ("write", agent_topic(fleet, name, "csr")),
                ("read", agent_topic(fleet, name, "certificate")),
            ]
        case "landing":
            return [
                ("read", f"{ROOT}/+/+/alerts"),
                ("read", f"{ROOT}/+/+/status"),
                ("write", f"{ROOT}/+/+/receipts"),
            ]
        case "enroller":
            return [
                ("read", f"{ROOT}/{ENROLMENT}/requests"),
                ("write", f"{ROOT}/{ENROLMENT}/answers/+"),
                ("read", f"{ROOT}/+/+/csr"),
                ("write", f"{ROOT}/+/+/certificate"),
            ]
        case "operator":
            return [
                *(("readwrite", f"{ROOT}/+/{below}/#") for below in ("bundles", "tuf", "steer")),
                ("write", f"{ROOT}/+/+/commands"),
                ("read", f"{ROOT}/+/+/replies"),
                ("read", f"{ROOT}/+/+/status"),
            ]
        case "analyst":
            return [
                ("write", f"{ROOT}/{fleet}/+/commands"),
                ("read", f"{ROOT}/{fleet}/+/replies"),
                ("read", f"{ROOT}/{fleet}/+/status"),
            ]
        case _:
            return []


def load(path: Path) -> tuple[str, str, dict[str, Member]]:
    """The broker's address, the landings' group and the members of ``members.json``; no broker, a new group's name and
    nobody when there is none. Raises ValueError."""
    if not path.exists():
        return "", f"landing-{secrets.token_hex(8)}", {}
    try:
        file = documents.read(_File, foreign.read(path.read_bytes()))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read ({error}): restore it, certificates and access need it") from error
    return file.broker, file.group, {member.name: member for member in file.members}


def dump(broker: str, group: str, members: Iterable[Member]) -> bytes:
    """What ``load`` reads."""
    document = {"broker": broker, "group": group, "members": [structs.asdict(member) for member in members]}
    return json.dumps(document, indent=1).encode() + b"\n"
