"""Notices: each finding once to each receiver, by real HTTP and SMTP, whatever is away meanwhile."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from email import message_from_string
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from spark_jobs.__main__ import main
from spark_jobs.tables.schema import ANOMALIES, CAMPAIGNS, NOTICES, RISK
from spark_jobs.tables.tables import Tables, open_tables
from tests.spark_jobs.conftest import run
from tests.spark_jobs.found import AT, anomaly, campaign, write
from tests.spark_jobs.landed import DAY


class Hook(ThreadingHTTPServer):
    """A webhook's receiver: what came, and what it answers (``status``)."""

    def __init__(self) -> None:
        self.got: list[tuple[str, Any]] = []
        self.status = 200
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if outer.status == 200:
                    outer.got.append((self.headers["Idempotency-Key"], body))
                self.send_response(outer.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()


class Post(socketserver.ThreadingTCPServer):
    """A mail server without extensions (RFC 5321), which takes mail for anybody but ``nobody@``."""

    def __init__(self) -> None:
        self.got: list[str] = []
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                say = lambda text: self.wfile.write(f"{text}\r\n".encode())  # noqa: E731
                say("220 here")
                for line in self.rfile:
                    verb = line.decode().strip().upper()
                    if verb.startswith("RCPT TO:<NOBODY@"):
                        say("550 no such mailbox")
                    elif verb == "DATA":
                        say("354 go on")
                        text = ""
                        while (more := self.rfile.readline().decode()) != ".\r\n":
                            text += more
                        outer.got.append(text)
                        say("250 taken")
                    elif verb == "QUIT":
                        say("221 bye")
                        return
                    else:
                        say("502 no" if verb.startswith("EHLO") else "250 ok")

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as server:
        yield server
        server.shutdown()


@pytest.fixture
def post() -> Iterator[Post]:
    with Post() as server:
        yield server
        server.shutdown()


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    tables = open_tables(str(tmp_path / "tables"))
    write(tables, CAMPAIGNS, campaign(1, level="critical"), campaign(2, level="low"), campaign(3, state="closed"))
    write(tables, ANOMALIES, anomaly(1), anomaly(2, kind="new_entity", level="critical"))
    return tables


def sinks(folder: Path, hook: Hook, template: str = "generic") -> str:
    file = folder / "notify.toml"
    url = f"http://127.0.0.1:{hook.server_port}/hook"
    file.write_text(
        f'[[sink]]\nname = "soc"\ntype = "webhook"\nurl = "{url}"\ntemplate = "{template}"\nlevel = "high"\n'
    )
    return f"--sinks={file}"


def test_each_finding_once(tables: Tables, tmp_path: Path, hook: Hook) -> None:
    """By level: an open campaign and a silence; no closed one, none below the level, no entity that is only new. What
    comes later is sent when it comes, and what somebody has looked at is not."""
    words = ["notify", f"--tables={tables.root}", f"--date={DAY}", sinks(tmp_path, hook)]
    assert run(None, *words) == "notify: 2 sent"
    assert {key: body["rule_title"] for key, body in hook.got} == {
        "campaign-1": "Campaign of ip 203.0.113.9, reached Execution",
        "anomaly-1": "Gone quiet",
    }
    assert "2026-11-20 12:00 north/plant  Initial Access" in dict(hook.got)["campaign-1"]["raw"]
    assert run(None, *words) == "notify: 0 sent"
    write(tables, CAMPAIGNS, campaign(4), campaign(5))
    run(None, "triage", f"--tables={tables.root}", "campaign-5", "--state=acknowledged")
    assert run(None, *words) == "notify: 1 sent"
    assert [key for key, _ in hook.got[2:]] == ["campaign-4"]


def test_a_risk_is_noticed(tables: Tables, tmp_path: Path, hook: Hook) -> None:
    """An entity over its threshold that no campaign names, with what its points are made of; once, although its row is
    another one every day. One below, or that the campaign names, is not."""
    part = {"points": 60.4, "time": AT, "rule_id": "r9", "level": "high", "tactic": "execution", "alerts": 1,
            "why": "first of its tactic"}  # fmt: skip
    row = {"as_of": DAY, "risk_id": "risk-1", "kind": "user", "value": "anna", "scope": "", "score": 120.0,
           "over": True, "threshold": 100.0, "level": "high", "reason": "120 points, 100 needed", "last_seen": AT,
           "first_seen": AT,
           "contributions": [part]}  # fmt: skip
    write(tables, RISK, row, {**row, "risk_id": "risk-2", "value": "bob", "over": False, "score": 9.0},
          {**row, "risk_id": "risk-3", "kind": "ip", "value": "203.0.113.9"})  # fmt: skip
    words = ["notify", f"--tables={tables.root}", f"--date={DAY}", sinks(tmp_path, hook)]
    assert run(None, *words) == "notify: 3 sent"
    body = dict(hook.got)["risk-1"]
    assert (body["rule_title"], body["tags"]) == ("Risk of user anna", ["attack.execution"])
    assert body["raw"] == "120 points, 100 needed\n60 2026-11-20 r9, first of its tactic"
    write(tables, RISK, {**row, "as_of": "2026-11-21", "score": 130.0})
    assert run(None, "notify", f"--tables={tables.root}", "--date=2026-11-21", words[-1]) == "notify: 0 sent"


def test_a_receiver_that_is_away_gets_it_later(tables: Tables, tmp_path: Path, hook: Hook, post: Post) -> None:
    """The run ends with why and with code 1, and the next one sends what is missing; the other receiver has all at
    once, and nothing twice."""
    mail = [
        f"--mail-server=smtp://127.0.0.1:{post.server_address[1]}",
        "--mail-from=v@example.org",
        "--mail-to=soc@example.org",
    ]
    words = ["notify", f"--tables={tables.root}", f"--date={DAY}", sinks(tmp_path, hook, "slack"), *mail]
    hook.status = 503
    with pytest.raises(click.ClickException, match=r"^2 sent; to be sent again: soc: .*503"):
        run(None, *words)
    hook.status = 200
    assert run(None, *words) == "notify: 2 sent"
    assert (len(hook.got), len(post.got)) == (2, 2)
    heads = sorted(body["blocks"][0]["text"]["text"] for _, body in hook.got)
    assert heads[0] == "[critical] Campaign of ip 203.0.113.9, reached Execution on 2 sites"
    mails = [message_from_string(text) for text in post.got]
    assert {mail["Subject"] for mail in mails} == {
        "[critical] Campaign of ip 203.0.113.9, reached Execution on 2 sites", "[high] Gone quiet on north/office",
    }  # fmt: skip
    assert {mail["Message-ID"] for mail in mails} == {"<campaign-1@vedette.invalid>", "<anomaly-1@vedette.invalid>"}


def test_what_a_receiver_refuses_is_not_sent_for_ever(
    tables: Tables, tmp_path: Path, hook: Hook, post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    """A 400, and a mailbox that is not there: logged and noted with the reason, and done with."""
    hook.status = 400
    mail = [
        f"--mail-server=smtp://127.0.0.1:{post.server_address[1]}",
        "--mail-from=v@example.org",
        "--mail-to=nobody@example.org",
    ]
    words = ["notify", f"--tables={tables.root}", f"--date={DAY}", sinks(tmp_path, hook), *mail]
    assert run(None, *words) == "notify: 0 sent"
    rows = tables.arrow(NOTICES).to_pylist()
    assert {(row["finding_id"], row["receiver"]) for row in rows} == {
        (finding, receiver) for finding in ("campaign-1", "anomaly-1") for receiver in ("soc", "mail")
    }
    assert all(row["refused"] for row in rows)
    assert "no such mailbox" in caplog.text
    assert run(None, *words) == "notify: 0 sent"


def test_a_digest_once_a_day(tables: Tables, post: Post) -> None:
    """The first screen by mail, once for its days; a mail server without TLS is given no password."""
    mail = [
        f"--mail-server=smtp://127.0.0.1:{post.server_address[1]}",
        "--mail-from=v@example.org",
        "--mail-to=soc@example.org",
    ]
    words = ["notify", f"--tables={tables.root}", f"--date={DAY}", "--days=1", "--digest", *mail]
    assert run(None, *words) == "notify: 1 sent"
    assert run(None, *words) == "notify: 0 sent"
    assert "Look at first" in post.got[0]
    assert "Subject: [informational] Digest of Friday, 20 November 2026 on all sites" in post.got[0]


def test_a_password_is_for_tls_alone(tables: Tables, tmp_path: Path, post: Post) -> None:
    """A server that offers no STARTTLS does not see it."""
    (tmp_path / "password").write_text("s3cret\n")
    mail = [f"--mail-server=smtp://ann@127.0.0.1:{post.server_address[1]}", "--mail-from=v@example.org",
            "--mail-to=soc@example.org", f"--mail-password-file={tmp_path / 'password'}"]  # fmt: skip
    with pytest.raises(click.ClickException, match="offers no TLS; the password is not sent"):
        run(None, "notify", f"--tables={tables.root}", f"--date={DAY}", *mail)
    assert post.got == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "notify needs --sinks FILE, or --mail-server URL"),
        ("--mail-server=mail.example --mail-from=a@b --mail-to=c@d", "expects smtp://HOST or smtps://HOST"),
        ("--mail-server=smtp://mail.example", "needs --mail-from and --mail-to"),
    ],
)
def test_a_wrong_receiver_is_named(words: str, said: str) -> None:
    done = CliRunner().invoke(main, ["notify", "--tables=t", *words.split()])
    assert (done.exit_code, said in done.stderr) == (2, True), done.stderr
