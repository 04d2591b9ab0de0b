"""The names of all topics between agents and their region.

::

    vedette/v1/{fleet}/{agent_id}/alerts|status|replies        up; status is retained
    vedette/v1/{fleet}/{agent_id}/receipts|commands            down
    vedette/v1/{fleet}/{agent_id}/csr                          up: a certificate is to be renewed
    vedette/v1/{fleet}/{agent_id}/certificate                  down, retained: the renewed one
    vedette/v1/enrolment/requests                              up, from hosts that are not members yet
    vedette/v1/enrolment/answers/{client id}                   down
    vedette/v1/{fleet}/bundles/{channel}/manifest              down, retained, small
    vedette/v1/{fleet}/bundles/{channel}/lookups/{name}        down, retained, small: a lookup that comes by itself
    vedette/v1/{fleet}/bundles/{channel}/blobs/{sha256}        down, retained; fetched only by those who lack it
    vedette/v1/{fleet}/tuf/{file}                              down, retained: the fleet's signed metadata
    vedette/v1/{fleet}/steer/lease|progress                    the controller's, retained: who steers, and how it stands
    vedette/v1/{fleet}/steer/lookups                           retained: how old the lookups are that reload
    vedette/v1/{fleet}/steer/requests/{id}                     to the controller, retained until it is carried out

The broker's access list lets an agent publish only under its own id: so the region believes fleet and agent in the
topic, never in the payload.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from vedette.system.within import NAME

ROOT = "vedette/v1"
ENROLMENT = "enrolment"
"""No fleet: where hosts become members. Also their user name at the broker."""
CLIENTS = "vedette-"
"""Client ids at the region's broker begin so, and no member's name does, which the broker takes as the member's id: a
host that is no member yet chooses its id freely, and could end the session of a member that has the same."""
UP = ("alerts", "status", "replies", "csr")
_AGENT = re.compile(rf"{ROOT}/({NAME})/({NAME})/({'|'.join(UP)})")


class AgentTopic(NamedTuple):
    """What an agent's topic says: whose it is, and what comes on it."""

    fleet: str
    agent_id: str
    leaf: str


def agent_topic(fleet: str, agent_id: str, leaf: str) -> str:
    """``vedette/v1/{fleet}/{agent_id}/{leaf}``."""
    return f"{ROOT}/{fleet}/{agent_id}/{leaf}"


def parse(topic: str) -> AgentTopic:
    """The parts of a topic that an agent publishes on; raises ValueError."""
    match = _AGENT.fullmatch(topic)
    if match is None:
        raise ValueError(f"not a topic of an agent: {topic[:200]!r}")
    return AgentTopic(match[1], match[2], match[3])


def enrolment_requests() -> str:
    """Where hosts ask to become members."""
    return f"{ROOT}/{ENROLMENT}/requests"


def enrolment_client(request_id: str) -> str:
    """The client id under which a host asks."""
    return CLIENTS + request_id


def enrolment_answer(request_id: str) -> str:
    """Where the answer to one request comes; the broker lets only the client id that asked read it."""
    return f"{ROOT}/{ENROLMENT}/answers/{enrolment_client(request_id)}"


def manifest_topic(fleet: str, channel: str) -> str:
    """Where the current bundle of a channel is announced."""
    return f"{ROOT}/{fleet}/bundles/{channel}/manifest"


def lookup_topic(fleet: str, channel: str, name: str) -> str:
    """Where the current version of a lookup is announced; ``+``: of every lookup."""
    return f"{ROOT}/{fleet}/bundles/{channel}/lookups/{name}"


def fleet_channel(version: str) -> str:
    """The channel of one version of a lookup that the fleet's documents name, so that several may be on their way."""
    return f"fleet-{version[:16]}"


def tuf_topic(fleet: str, name: str) -> str:
    """Where a file of the fleet's metadata lies."""
    return f"{ROOT}/{fleet}/tuf/{name}"


def steer_topic(fleet: str, name: str) -> str:
    """Of the centre: ``lease``, ``progress``, ``requests/ID``, ``lookups``. No agent may read or write it."""
    return f"{ROOT}/{fleet}/steer/{name}"


def blob_topic(fleet: str, channel: str, sha256: str) -> str:
    """Where bytes lie whose digest is known: of a bundle, or of a lookup's block."""
    return f"{ROOT}/{fleet}/bundles/{channel}/blobs/{sha256}"
