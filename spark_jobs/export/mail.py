"""Notices by e-mail: a plain text a finding, to a mail server that takes it (RFC 5321, by ``smtplib``).

Delivery: as every receiver of ``vedette.sinks`` (its ``base`` has the contract). A message keeps its Message-ID however
often it is sent, so that a mailbox shows a repeated one once.
"""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from urllib.parse import unquote, urlsplit

from spark_jobs.common.plain import cut, plain
from vedette.sinks.base import Answer, Outgoing, Verdict, secret

TIMEOUT = 30.0
MAX_SUBJECT = 150


@dataclass(frozen=True, slots=True)
class Mail:
    """``server`` is ``smtp://HOST:PORT`` (STARTTLS where it is offered) or ``smtps://``; ``USER@`` before the host logs
    in with the password of ``password_file``, over TLS only."""

    server: str
    sender: str
    recipients: tuple[str, ...]
    password_file: Path | None = None
    context: ssl.SSLContext | None = None

    @property
    def batch(self) -> int:
        return 20

    async def deliver(self, alerts: Sequence[Outgoing]) -> list[Answer]:
        return await asyncio.to_thread(self._send, alerts)

    async def close(self) -> None:
        pass

    def message(self, alert: Outgoing) -> EmailMessage:
        """The mail for one notice."""
        row, mail = alert.row, EmailMessage()
        mail["From"], mail["To"] = self.sender, ", ".join(self.recipients)
        mail["Subject"] = cut(plain(f"[{row['level']}] {row['rule_title']} on {row['host']}"), MAX_SUBJECT)
        mail["Message-ID"] = f"<{alert.id}@vedette.invalid>"
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content("\n".join(plain(line) for line in (row["raw"] or "").split("\n")) + f"\n\n{alert.id}\n")
        return mail

    def _send(self, alerts: Sequence[Outgoing]) -> list[Answer]:
        answers: list[Answer] = []
        try:
            with self._connected() as server:
                for alert in alerts:
                    try:
                        server.send_message(self.message(alert), self.sender, list(self.recipients))
                        answers.append(Answer(Verdict.TAKEN, "taken"))
                    except smtplib.SMTPRecipientsRefused as error:
                        codes = [code for code, _ in error.recipients.values()]
                        answers.append(_answer(max(codes), str(error)))
                    except smtplib.SMTPResponseException as error:
                        answers.append(_answer(error.smtp_code, str(error)))
        except (OSError, smtplib.SMTPException) as error:
            answers.append(Answer(Verdict.LATER, f"{urlsplit(self.server).hostname}: {error}"))
        return (answers + [Answer(Verdict.UNTRIED)] * len(alerts))[: len(alerts)]

    def _connected(self) -> smtplib.SMTP:
        """A session with the server, logged in where a user is named. Raises OSError and SMTPException."""
        url, context = urlsplit(self.server), self.context or ssl.create_default_context()
        host = url.hostname or ""
        if url.scheme == "smtps":
            server: smtplib.SMTP = smtplib.SMTP_SSL(host, url.port or 465, timeout=TIMEOUT, context=context)
        else:
            server = smtplib.SMTP(host, url.port or 25, timeout=TIMEOUT)
        try:
            server.ehlo_or_helo_if_needed()
            secure = url.scheme == "smtps"
            if not secure and server.has_extn("starttls"):
                server.starttls(context=context)
                secure = True
            if url.username:
                if not secure:
                    raise OSError("offers no TLS; the password is not sent")
                if self.password_file is None:
                    raise OSError("a user without a password file")
                server.login(unquote(url.username), secret(self.password_file))
        except BaseException:
            server.close()
            raise
        return server


def _answer(code: int, text: str) -> Answer:
    """5xx is final (RFC 5321, 4.2.1)."""
    return Answer(Verdict.REFUSED if code >= 500 else Verdict.LATER, text)
