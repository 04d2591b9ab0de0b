"""The job ``notify``: new findings, once each, to webhooks, chats, pagers and mailboxes; or a digest, once a period.

Receivers are ``[[sink]]`` tables in a file, as an agent has them, with their filters and templates; and a mail server.
What a receiver has taken is noted in the table ``notices`` right after: a run that is cut short in between sends the
same notice again, under the same id. One that a receiver refuses for good is noted as well, with its reason; one that
it could not take is sent by the next run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click
import pyarrow as pa

from spark_jobs.common.period import period
from spark_jobs.jobs.job import FILE, Job, days_options, spark_job
from spark_jobs.jobs.report import MAX_DAYS, figures
from spark_jobs.report.notices import digest, notices
from spark_jobs.tables.schema import NOTICES
from spark_jobs.tables.tables import Tables

log = logging.getLogger(__name__)


class Lowest(NamedTuple):
    """A filter by level alone, as ``vedette.sinks.base.Filter``."""

    level: str
    rules: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


@spark_job()
@days_options(2, "Days whose findings are looked at.", most=MAX_DAYS)
@click.option("--sinks", type=FILE, metavar="FILE", help="TOML with [[sink]] tables, as in an agent's configuration.")
@click.option("--mail-server", "server", metavar="URL", help="smtp://[USER@]HOST:PORT or smtps://…")
@click.option("--mail-from", "sender", metavar="ADDRESS", help="Sender of the mails.")
@click.option("--mail-to", "recipients", multiple=True, metavar="ADDRESS", help="Recipient; may be repeated.")
@click.option("--mail-password-file", "password", type=FILE, metavar="FILE", help="Password of USER, one line.")
@click.option("--mail-level", "level", type=click.Choice(("low", "medium", "high", "critical")), default="high",
              show_default=True, help="Lowest level of what is mailed; sinks have their own.")  # fmt: skip
@click.option("--digest", "summed", is_flag=True, help="Send the first screen of these days instead, once.")
def notify(
    job: Job, last: date, days: int, sinks: Path | None, server: str | None, sender: str | None,
    recipients: tuple[str, ...], password: Path | None, level: str, summed: bool,
) -> str:  # fmt: skip
    """Send new campaigns, anomalies and risks to webhooks, chats and mail, once each.

    Example: vedette-spark notify --tables tables --sinks /etc/vedette/notify.toml

    Example: vedette-spark notify --tables tables --digest --date yesterday --days 1 --mail-server smtp://mail.example
    --mail-from vedette@example.org --mail-to soc@example.org
    """
    if not sinks and not server:
        raise click.UsageError("notify needs --sinks FILE, or --mail-server URL")
    url = urlsplit(server or "")
    if server and not (sender and recipients and url.scheme in ("smtp", "smtps") and url.hostname):
        raise click.UsageError("--mail-server expects smtp://HOST or smtps://HOST, and needs --mail-from and --mail-to")
    from vedette import __version__
    from vedette.config.read import load
    from vedette.sinks.base import fits
    from vedette.sinks.opening import opened

    receivers: dict[str, tuple[Any, Any]] = {}
    if sinks:
        for sink in load(sinks).sink:
            receivers[sink.name] = sink, opened(sink, __version__)
        if not receivers:
            raise click.UsageError(f"--sinks: {sinks} has no [[sink]]")
    if server:
        from spark_jobs.export.mail import Mail

        receivers["mail"] = Lowest(level), Mail(server, str(sender), recipients, password)
    with closing(job.reader()) as reader:
        report = figures(reader, period(last, days))
    rows = [digest(report)] if summed else list(notices(report))
    sent, failed = 0, list[str]()
    sent_before = {(row["finding_id"], row["receiver"]) for row in job.tables.arrow(NOTICES).to_pylist()}
    for name, (filters, receiver) in receivers.items():
        mine = [row for row in rows if (row["alert_id"], name) not in sent_before]
        if not summed:
            mine = [row for row in mine if fits(filters, row["level"], row["rule_id"], row["tags"])]
        number, why = asyncio.run(_deliver(job.tables, name, receiver, mine))
        sent += number
        if why:
            failed.append(f"{name}: {why}")
    if failed:
        raise click.ClickException(f"{sent} sent; to be sent again: {'; '.join(failed)}")
    return f"notify: {sent} sent"


async def _deliver(tables: Tables, name: str, receiver: Any, rows: Sequence[dict[str, Any]]) -> tuple[int, str]:
    """Hand ``rows`` to the receiver ``name`` and note what is done with; how many it took, and why it did not take
    others now (empty: it took all, or refused for good)."""
    from vedette.sinks.base import Outgoing, Verdict

    number, why = 0, ""
    try:
        for first in range(0, len(rows), receiver.batch):
            batch = [Outgoing(0, row["alert_id"], row) for row in rows[first : first + receiver.batch]]
            answers = list(zip(batch, await receiver.deliver(batch), strict=True))
            ended = (Verdict.TAKEN, Verdict.REFUSED)
            done = [(notice.id, answer) for notice, answer in answers if answer.verdict in ended]
            for finding, answer in done:
                if answer.verdict is Verdict.REFUSED:
                    log.error("%s refuses the notice of %s: %s", name, finding, answer.text)
            number += sum(answer.verdict is Verdict.TAKEN for _, answer in done)
            if done:
                now = datetime.now(UTC)
                tables.upsert(NOTICES, pa.Table.from_pylist([
                    {"finding_id": finding, "receiver": name, "sent_at": now,
                     "refused": answer.text if answer.verdict is Verdict.REFUSED else ""} for finding, answer in done
                ]))  # fmt: skip
            if len(done) < len(answers):
                why = next(answer.text for _, answer in answers if answer.verdict is Verdict.LATER)
                break
    finally:
        await receiver.close()
    return number, why
