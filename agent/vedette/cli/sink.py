"""Where alerts of this host go besides the region: sink test."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from vedette.cli.console import config_option, fail, safe
from vedette.config.settings import AgentSettings
from vedette.fleet.overlay import load
from vedette.model.event import Alert, Entity, LogSource, RawRef
from vedette.sinks.base import Answer, Outgoing, SinkSettings, Verdict
from vedette.sinks.opening import opened
from vedette.system.terminal import json_line
from vedette.system.wallclock import utc_now
from vedette.version import __version__

RULE = "vedette.sink.test"
_SAID = {
    Verdict.TAKEN: "taken",
    Verdict.LATER: "not taken; of an alert it would be asked again",
    Verdict.REFUSED: "refused; an alert would be a dead letter",
    Verdict.UNTRIED: "not tried",
}


@click.group()
def sink() -> None:
    """Try the receivers of alerts.

    Example: vedette sink test soc
    """


@sink.command("test")
@config_option
@click.argument("name")
def sink_test(config: Path, name: str) -> None:
    """Send one marked alert to a sink, or a row where it takes only these, and print what its receiver answers.

    The alert has the rule vedette.sink.test, the level informational and the flag test; no filter applies. It is sent
    by this command, as whoever calls it (best `sudo -u vedette`), whether or not the agent runs: what only the agent's
    sandbox may not do does not show. Exit code 1 when the receiver does not take it.

    Example: vedette sink test soc
    """
    settings = load(config)
    sinks = {sink.name: sink for sink in settings.sink}
    if name not in sinks:
        fail(f"no sink {name!r} is configured; there are: {', '.join(sinks) or 'none'}")
    alert = _alert(settings.agent, name)
    if sinks[name].takes == "rows":
        alert = alert._replace(line=json_line({"test": name, "agent_id": settings.agent.id, "id": alert.id}).encode())
    answer = asyncio.run(_deliver(sinks[name], alert))
    click.echo(safe(f"{name} ({sinks[name].type}) to {sinks[name].to}: {_SAID[answer.verdict]}"))
    if answer.text:
        click.echo(safe(f"  {answer.text}"))
    if answer.wait:
        click.echo(f"  asks to be left alone for {answer.wait:g} s")
    sys.exit(0 if answer.verdict is Verdict.TAKEN else 1)


async def _deliver(settings: SinkSettings, alert: Outgoing) -> Answer:
    receiver = opened(settings, __version__)
    try:
        return (await receiver.deliver([alert]))[0]
    finally:
        await receiver.close()


def _alert(agent: AgentSettings, name: str) -> Outgoing:
    from vedette.delivery.envelope import alert_id, received_date, to_row

    now = utc_now()
    id = alert_id(agent.id, "test", RULE, now)
    alert = Alert(
        alert_id=id, seq=0, rule_id=RULE, rule_title=f"Test of the sink {name}", rule_digest="", level="informational",
        agent_id=agent.id, site=agent.site, fleet=agent.fleet, event_time=now, detected_at=now,
        received_date=received_date(now), source="test", raw="This is a test: no event is behind it.",
        raw_ref=RawRef("0" * 32, 0, 0), host=agent.id, tags=("vedette.test",), logsource=LogSource(),
        entities=(Entity("host", agent.id),), flags=("test",),
    )  # fmt: skip
    return Outgoing(0, id, to_row(alert))
