"""A request to agents: an operator's signed question or command, and whether an agent may act on it. Pure.

    {"signed": REQUEST, "signature": BASE64}      as canonical JSON, by whatever carries it: MQTT or a file

    REQUEST = {"format": 1, "fleet", "id", "agents": [agent id] | null, "group": label expression | null,
               "kind": row of KINDS | "resume" | "cancel", "body": object, "reason": text,
               "operator": name, "created", "expires": RFC 3339, "nonce": 32 hex digits}

``signature`` is Ed25519 (RFC 8032) by the operator's key over ``DOMAIN`` and REQUEST in its one form as bytes
(``documents.canonical``), so that no signature made for something else counts here. ``agents`` or ``group`` says who is
asked; the agent holds the expression against its own labels.

``admit`` checks in this order, and ``Refused.kind`` says what failed first:

1. ``malformed``: not an envelope of this form and size;
2. ``operator``: nobody of this name in ``operators.json``; ``signature``: not by that operator's key. Up to here
   anybody may have written it: it gets no answer;
3. ``fleet``: of another fleet; ``agent``: not asked of this agent;
4. ``operator expired``; ``trust expired``: this agent's metadata are out of date, so that the list of operators may be;
5. ``expired``: past its time, from the future, or longer than MAX_LIFE; by ``signedtime.py``, as 4;
6. ``replayed``: its nonce was seen before (``spool.py`` keeps nonces until they expire);
7. ``kind``, ``role``, ``not allowed`` (by the host's own configuration) and ``body``.

A ``cancel`` of a request that has not come is admitted, so that it counts when the two come in the wrong order.
``withdrawn`` says of what was admitted before whether its operator may still ask it.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from vedette.bundle.manifest import rfc3339
from vedette.fleet import labels
from vedette.fleet.documents import canonical
from vedette.fleet.operators import Operator, Operators
from vedette.system import documents, foreign
from vedette.system.documents import Hex32, Name, Time
from vedette.system.within import NAME

FORMAT = 1
DOMAIN = b"vedette request 1\n"
MAX_REQUEST = 1 << 20
"""Bytes of an envelope: a rule to hunt with fits."""
MAX_AGENTS = 1000
"""Named in one request; more are asked by a group."""
MAX_REASON = 500
"""Characters."""
MAX_LIFE = 7 * 86_400_000_000
"""Microseconds from ``created`` to ``expires``: for so long nonces are kept."""
MAX_SKEW = 300_000_000
"""By which an operator's clock may be ahead, in microseconds."""
RESUME, CANCEL = "resume", "cancel"
"""About a request that was made before: ``{"request": id, "have": [[first, last], …], "done": bool}`` says which parts
of the reply have come, ``{"request": id}`` stops it."""
UNANSWERED = ("malformed", "operator", "signature", "fleet", "agent", "replayed")
"""Refusals that are recorded and get no reply."""
ID = re.compile(r"[0-9a-f]{32}")


class Refused(ValueError):
    """The request is not acted on. ``kind``: which check failed; ``request``: what was asked, once its signature is
    known to be an operator's."""

    def __init__(self, kind: str, reason: str, request: Request | None = None) -> None:
        super().__init__(reason)
        self.kind, self.request = kind, request


_Asked = Annotated[str, Meta(pattern=rf"\A\.?{NAME}\Z", description="an agent id")]
"""With a dot before it, who is no agent, as the fleet's controller."""


class Request(Struct, frozen=True):
    """Times are UTC microseconds. In a document every field stands, and no other but ``format``."""

    fleet: Name
    kind: Name
    operator: Name
    created: Time
    expires: Time
    body: Mapping[str, Any] = {}
    agents: (
        Annotated[
            tuple[_Asked, ...], Meta(min_length=1, max_length=MAX_AGENTS, description=f"1 to {MAX_AGENTS} agent ids")
        ]
        | None
    ) = None
    group: Annotated[str, Meta(description="a label expression")] | None = None
    reason: Annotated[str, Meta(max_length=MAX_REASON, description=f"a text of at most {MAX_REASON} characters")] = ""
    id: Hex32 = field(default_factory=lambda: secrets.token_hex(16))
    nonce: Hex32 = field(default_factory=lambda: secrets.token_hex(16))

    def document(self) -> dict[str, Any]:
        return {
            "format": FORMAT, "fleet": self.fleet, "id": self.id, "kind": self.kind, "body": dict(self.body),
            "agents": None if self.agents is None else [*self.agents], "group": self.group, "reason": self.reason,
            "operator": self.operator, "created": rfc3339(self.created), "expires": rfc3339(self.expires),
            "nonce": self.nonce,
        }  # fmt: skip

    def asks(self, agent: str, own: Mapping[str, str]) -> bool:
        """Whether it is for the agent of this id and labels. Raises ValueError for an expression that is none."""
        if self.agents is not None:
            return agent in self.agents
        return self.group is not None and labels.parse(self.group).matches(own)

    def signed(self, key: Ed25519PrivateKey) -> bytes:
        """The envelope."""
        document = self.document()
        signature = base64.b64encode(key.sign(DOMAIN + canonical(document))).decode()
        return canonical({"signed": document, "signature": signature})


class Entitled(Protocol):
    """What ``admit`` asks of a row of kinds: the role that an operator needs; ``validate`` raises ValueError."""

    @property
    def role(self) -> str: ...

    @property
    def validate(self) -> Callable[[Mapping[str, Any]], None]: ...


@dataclass(frozen=True, slots=True)
class Host:
    """What an agent knows of itself when it decides on a request."""

    fleet: str
    agent: str
    labels: Mapping[str, str]
    allow: Collection[str]
    """Kinds that the host's owner allows."""
    operators: Operators | None
    trusted_until: int
    """When the metadata expire that name the operators; UTC microseconds."""
    clock: Callable[[], int]
    """``SignedTime.now``, so that what has expired stays so."""


def admit(
    data: bytes, host: Host, kinds: Mapping[str, Entitled], seen: Callable[[str], bool], asked: Callable[[str], str]
) -> Request:
    """The request in an envelope, when this host acts on it. ``seen`` knows the nonces of earlier ones; ``asked`` says
    of which kind a request is that this agent works on ("": of none). Raises Refused."""
    request, signature = read(data)
    who = _operator(request, signature, host)
    try:
        _about(request, who, host)
        if seen(request.nonce):
            raise Refused("replayed", "its nonce was seen before", request)
        _entitled(request, who, host, kinds, asked)
    except Refused as error:
        raise Refused(error.kind, str(error), request) from error
    return request


def _operator(request: Request, signature: bytes, host: Host) -> Operator:
    who = host.operators.by_name.get(request.operator) if host.operators is not None else None
    if who is None:
        raise Refused("operator", f"nobody called {request.operator} is an operator of this fleet")
    try:
        who.key.verify(signature, DOMAIN + canonical(request.document()))
    except InvalidSignature as error:
        raise Refused("signature", f"it is not signed by the key of {request.operator}") from error
    return who


def _about(request: Request, who: Operator, host: Host) -> None:
    """Whether it is meant for this agent, now."""
    now = host.clock()
    if request.fleet != host.fleet:
        raise Refused("fleet", f"it is for fleet {request.fleet}")
    try:
        asked = request.asks(host.agent, host.labels)
    except ValueError as error:
        raise Refused("malformed", f"group: {error}") from error
    if not asked:
        raise Refused("agent", "this agent is not asked")
    if now >= who.expires:
        raise Refused("operator expired", f"{who.name} was an operator until {rfc3339(who.expires)}")
    if now >= host.trusted_until:
        raise Refused("trust expired", "the fleet's metadata have expired here, and with them the list of operators")
    if now >= request.expires:
        raise Refused("expired", f"it expired at {rfc3339(request.expires)}")
    if request.created > now + MAX_SKEW:
        raise Refused("expired", f"it is from the future ({rfc3339(request.created)}): compare the clocks")
    if not 0 < request.expires - request.created <= MAX_LIFE:
        raise Refused("expired", "it may be good for 7 days at most")


def _entitled(
    request: Request, who: Operator, host: Host, kinds: Mapping[str, Entitled], asked: Callable[[str], str]
) -> None:
    """Whether the operator may ask this of this host."""
    kind = request.kind
    if kind in (RESUME, CANCEL):
        try:
            about_request(request)
        except ValueError as error:
            raise Refused("body", str(error)) from error
        kind = asked(request.body["request"])
        if not kind and request.kind == CANCEL:
            return
        if not kind:
            raise Refused("unknown", "this agent works on no such request")
    row = kinds.get(kind)
    if row is None:
        raise Refused("kind", f"{kind!r} is no kind of request here; known: {', '.join(kinds)}")
    if row.role not in who.roles:
        raise Refused("role", f"{who.name} lacks the role {row.role}, which {kind} takes")
    if request.kind in (RESUME, CANCEL):
        return
    if kind not in host.allow:
        raise Refused("not allowed", f"the owner of this host does not allow {kind} ([fleet] allow)")
    try:
        row.validate(request.body)
    except ValueError as error:
        raise Refused("body", str(error)) from error


def withdrawn(request: Request, signature: bytes, operators: Operators, kinds: Mapping[str, Entitled], now: int) -> str:
    """Why the operator may not go on with a request that was admitted before; empty: he may."""
    who = operators.by_name.get(request.operator)
    if who is None:
        return f"{request.operator} is no operator of this fleet any more"
    if now >= who.expires:
        return f"{who.name} was an operator until {rfc3339(who.expires)}"
    row = kinds.get(request.kind)
    if row is not None and row.role not in who.roles:
        return f"{who.name} has the role {row.role} no more, which {request.kind} takes"
    try:
        who.key.verify(signature, DOMAIN + canonical(request.document()))
    except InvalidSignature:
        return f"{who.name} has another key now"
    return ""


_Part = Annotated[int, Meta(ge=0, lt=2**31, description="the number of a part")]


class _About(Struct, frozen=True):
    request: Hex32
    have: Annotated[tuple[tuple[_Part, _Part], ...], Meta(max_length=1000, description="at most 1000 ranges")] = ()
    done: bool = False

    def __post_init__(self) -> None:
        if any(first > last for first, last in self.have):
            raise documents.Misfit("have", "expects ranges [first, last]")


def about_request(request: Request) -> tuple[str, tuple[tuple[int, int], ...], bool]:
    """What a ``resume`` or ``cancel`` is about: request, parts that have come, whether that is all. Raises
    ValueError."""
    about = documents.read(_About, request.body, "body")
    return about.request, about.have, about.done


# --- reading


class _Envelope(Struct, frozen=True, forbid_unknown_fields=True):
    signed: Request
    signature: bytes


def read(data: bytes) -> tuple[Request, bytes]:
    """What an envelope says, and its signature, which is not checked. Raises Refused."""
    try:
        if len(data) > MAX_REQUEST:
            raise ValueError(f"{len(data)} bytes, at most {MAX_REQUEST}")
        document = foreign.read(data)  # which takes no text that is not UTF-8
        documents.of_format(foreign.table(document).get("signed"), FORMAT)
        envelope = documents.read(_Envelope, document)
        if (envelope.signed.agents is None) == (envelope.signed.group is None):
            raise ValueError("signed: expects agents or group, and not both")
        if data != canonical(document) or envelope.signed.document() != document["signed"]:
            raise ValueError("not in the one form of a request")
    except ValueError as error:
        raise Refused("malformed", str(error)[:200]) from error
    return envelope.signed, envelope.signature


def follow_up(
    request: Request, kind: str, agents: Sequence[str], now: int, body: Mapping[str, Any] | None = None, *,
    operator: str = "",
) -> Request:  # fmt: skip
    """A ``resume`` or ``cancel`` of ``request`` for some of the agents that it asked, good for an hour. ``operator``:
    who says so; by default who has asked."""
    return replace(
        request, kind=kind, agents=tuple(agents), group=None, created=now, expires=now + 3_600_000_000,
        operator=operator or request.operator, body={"request": request.id, **(body or {})}, reason="",
        id=secrets.token_hex(16), nonce=secrets.token_hex(16),
    )  # fmt: skip


def cancelled(request: Request, now: int, operator: str) -> Request:
    """A ``cancel`` of ``request`` for all that it asked, good for as long as it: to be carried by hand."""
    cancel = follow_up(request, CANCEL, (), now, operator=operator)
    until = max(request.expires, cancel.expires)
    return replace(cancel, agents=request.agents, group=request.group, expires=until)
