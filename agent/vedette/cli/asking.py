"""What the commands that ask hosts have in common: options, whom to ask, and taking the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from vedette.cli.console import json_line, safe
from vedette.cli.options import broker_options, required_or_empty
from vedette.fleet import labels
from vedette.fleet.replies import Part
from vedette.fleet.requests import Request
from vedette.model.times import seconds
from vedette.mqtt.settings import MqttSettings
from vedette.region import announce, requests, sites
from vedette.region.repository import Repository
from vedette.region.requests import Collection
from vedette.region.sign import load_key, public_text
from vedette.region.steer.ordering import operator_of
from vedette.runtime.agent.logs import log_to_stderr

NO_ANSWER = "no answer"


@dataclass(frozen=True, slots=True)
class Asking:
    """The options; see ``asking_options``."""

    broker: MqttSettings | None
    """None: requests and replies are carried by hand."""
    fleet: str
    operator: str
    key: Path
    folder: Path
    authorities: bytes
    revoked: frozenset[int]
    wait: float
    expires: float
    reason: str
    as_json: bool
    trust: Path
    agents: tuple[str, ...] = ()
    group: str = ""


def asking_options(
    command: Callable[..., None], *, whom: bool = True, reason: bool = False, expires: str = "1h"
) -> Callable[..., None]:
    """Options of a command that asks hosts, for ``read_options``. ``whom``: --agent and --group; ``reason``: --reason
    must be given; ``expires``: the default of --expires."""
    path = click.Path(path_type=Path)
    options = [
        click.option("--key", type=path, required=True, help="Your private key as an operator (PEM, mode 0600)."),
        click.option("--as", "operator", default="", metavar="NAME", help="Your name as an operator; default: by key."),
        click.option("--fleet", default="", metavar="NAME", help="The fleet; default: that of --trust."),
        click.option("--trust", type=path, default=Path("trust"), show_default=True, help="The fleet's metadata."),
        click.option(
            "--requests", "folder", type=path, default=Path("requests"), show_default=True,
            help="Where requests, replies and their record are kept, for their owner only.",
        ),
        click.option("--crl", type=path, help="The region's crl.pem: replies of revoked agents are refused."),
        click.option("--wait", default="30s", show_default=True, help="How long to wait for answers."),
        click.option(
            "--expires", default="", metavar="TIME",
            help=f"Until when agents may act on it; 7d at most. Default: {expires}; with --offline 7d.",
            callback=lambda context, _, text: text or ("7d" if context.params.get("offline") else expires),
        ),
        click.option(
            "--offline", is_flag=True, is_eager=True,
            help="Without a broker: what is asked goes with `vedette fleet export --site`.",
        ),
        click.option("--reason", **required_or_empty(reason), help="Why: recorded on both sides."),
        click.option("--json", "as_json", is_flag=True, help="One JSON object per agent."),
    ]  # fmt: skip
    if whom:
        options = [
            click.option("--agent", "agents", multiple=True, metavar="ID", help="Whom to ask. Repeat it."),
            click.option("--group", default="", metavar="EXPR", help="Whom to ask, as 'site = vienna'; or 'all'."),
            *options,
        ]
    command = broker_options(command, required=False)
    for option in reversed(options):
        command = option(command)
    return command


def read_options(
    *, key: Path, operator: str, fleet: str, trust: Path, folder: Path, crl: Path | None, wait: str, expires: str,
    reason: str, as_json: bool, offline: bool, ca_file: Path | None, agents: tuple[str, ...] = (), group: str = "",
    **broker: Any,
) -> Asking:  # fmt: skip
    """Raises ValueError and OSError."""
    if offline == bool(broker["url"]):
        raise ValueError("give either --broker URL or --offline")
    repository = Repository(trust)
    fleet = fleet or repository.fleet
    operator = operator or operator_of(repository, public_text(load_key(key)))
    if not operator:
        raise ValueError(f"{key}: nobody's key in {trust}: give your name by --as, or see [[operator]] in fleet.toml")
    settings = None if offline else MqttSettings(ca_file=ca_file, **broker)
    if ca_file is None:
        raise ValueError("--ca-file: which authority signs the agents' certificates? Replies are checked against it")
    return Asking(
        settings, fleet, operator, key, folder, ca_file.read_bytes(),
        requests.revoked_serials(crl) if crl else frozenset(), seconds(wait), seconds(expires), reason, as_json,
        trust, agents, group,
    )  # fmt: skip


def ask(
    options: Asking,
    kind: str,
    body: Mapping[str, Any],
    news: Callable[[str, Part], None] | None = None,
    *,
    alert: str = "",
) -> Collection:
    """Send a request and take what comes until all have answered or ``--wait`` is over; offline the command ends once
    it waits to be carried. Raises ValueError when nobody is asked, OSError."""
    if bool(options.agents) == bool(options.group):
        raise ValueError("whom? Give --agent ID or --group EXPR")
    log_to_stderr()
    expression = labels.parse(options.group) if options.group else None
    now = requests.moment()
    request = Request(
        options.fleet, kind, options.operator, now, now + round(options.expires) * 1_000_000, body,
        tuple(dict.fromkeys(options.agents)) or None, options.group or None, options.reason,
    )  # fmt: skip

    def begin(agents: Sequence[str]) -> Collection:
        begun = Collection.begin(
            options.folder, request, load_key(options.key), agents, options.authorities, options.revoked, alert=alert
        )
        click.echo(f"request {request.id}: {len(agents)} agents", err=True)
        return begun

    if options.broker is None:
        agents: Sequence[str] = request.agents or ()
        if expression is not None:
            agents = requests.chosen(sites.answers(options.trust), expression.matches)
            if not agents:
                raise ValueError(f"no agent whose answers were carried here has labels for {options.group!r}")
        begin(agents).carry()
        click.echo(f"it goes with: vedette fleet export --site; later: vedette fleet fetch {request.id[:8]} --offline")
        click.get_current_context().exit()
    broker = options.broker

    async def conduct() -> Collection:
        agents: Sequence[str] = request.agents or ()
        if expression is not None:
            beats = await announce.heartbeats(broker, options.fleet)
            agents = requests.chosen(beats, expression.matches)
            away = sorted(agent for agent, beat in beats.items() if beat.get("state") == "lost")
            if away:
                click.echo(safe(f"away, so not asked: {', '.join(away[:20])}"), err=True)
            if not agents:
                raise ValueError(f"no agent that is here has labels for {options.group!r}")
        return await _converse(options, broker, begin(agents), news, fresh=True)

    return asyncio.run(conduct())


def fetch(options: Asking, id: str, news: Callable[[str, Part], None] | None = None) -> Collection:
    """Go on with a request that was made before; offline with what was carried here. Raises ValueError and OSError."""
    log_to_stderr()
    folder = requests.find(options.folder, id)
    collection = Collection(folder, options.authorities, options.revoked, options.operator)
    if options.broker is None:
        return collection
    return asyncio.run(_converse(options, options.broker, collection, news, fresh=False))


def stop(options: Asking, id: str) -> Collection:
    """Cancel one, and take what agents still send; offline it waits to be carried. Raises ValueError and OSError."""
    log_to_stderr()
    broker, folder = options.broker, requests.find(options.folder, id)
    collection = Collection(folder, options.authorities, options.revoked, options.operator)
    if broker is None:
        collection.cancel(load_key(options.key))
        if not all(answer.over for answer in collection.answers.values()):
            collection.carry()
            click.echo("it goes with: vedette fleet export --site")
        return collection

    async def conduct() -> Collection:
        key = load_key(options.key)
        async with requests.by_broker(broker, options.fleet, collection.request.id[:12]) as wire:
            await requests.cancel(wire, collection, key)
            await requests.converse(wire, collection, key, options.wait, fresh=False)
        collection.close()
        return collection

    return asyncio.run(conduct())


async def _converse(
    options: Asking, broker: MqttSettings, collection: Collection, news: Callable[[str, Part], None] | None, *,
    fresh: bool,
) -> Collection:  # fmt: skip
    key = load_key(options.key)
    async with requests.by_broker(broker, options.fleet, collection.request.id[:12]) as wire:
        await requests.converse(
            wire, collection, key, options.wait, fresh=fresh, news=news or (lambda agent, part: None)
        )
    collection.close()
    return collection


def end(collection: Collection) -> int:
    """Say who did not answer, or not with all of it; the exit code."""
    wrong = 0
    for agent, answer in collection.answers.items():
        if answer.whole and answer.state == "done":
            continue
        wrong += 1
        click.echo(safe(f"{agent}: {state(collection, agent)}"), err=True)
    if any(not answer.over for answer in collection.answers.values()):
        click.echo(f"later: vedette fleet fetch {collection.request.id[:8]}", err=True)
    return 1 if wrong else 0


def state(collection: Collection, agent: str) -> str:
    """How an agent's reply stands."""
    answer = collection.answers[agent]
    if answer.stopped:
        return f"not taken: {answer.stopped}"
    if not answer.whole:
        return f"{len(answer.have)} parts so far" if answer.have else NO_ANSWER
    return f"{answer.state}{': ' if answer.reason else ''}{answer.reason}"


def as_json(collection: Collection) -> None:
    """A line for each agent."""
    for agent, answer in collection.answers.items():
        click.echo(json_line({
            "agent_id": agent, "request": collection.request.id, "state": answer.state or NO_ANSWER,
            "reason": answer.stopped or answer.reason, "whole": answer.whole,
            "records": [*collection.records(agent)],
        }))  # fmt: skip


def table(rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they must be."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))] if rows else []
    for row in rows:
        click.echo(safe("  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip()))
