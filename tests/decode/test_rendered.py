"""Windows events as the text that Event Viewer shows: of Snare and EventReporter (``rendered.jsonl``: a line and its
fields, of which null is none)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.decode.test_formats import read
from tests.differences import walk
from vedette.decode.decoder import ABSENT, record
from vedette.decode.formats.rendered import said

ROWS: list[dict[str, Any]] = [
    json.loads(line) for line in (Path(__file__).parent / "rendered.jsonl").read_text("utf-8").splitlines()
]
LINES: dict[str, str] = {row["what"]: row["line"] for row in ROWS}
HEADS = ("<14>Nov 28 02:29:33 w1 ", "<13>Nov 28 02:29:33 w1\t", "w1\t", "Nov 28 02:29:33 w1 ", "",
         "<14>1 2026-11-28T02:29:33Z w1 - - - - ")  # fmt: skip


@walk(("what", "line", "wanted", "category"), [tuple(row.values()) for row in ROWS])
def test_texts(what: str, line: str, wanted: dict[str, Any], category: str) -> None:
    """Values by their labels and headings; the event's own sources."""
    shown = read(line)
    assert {name: None if (value := shown.get(name)) is ABSENT else value for name in wanted} == wanted
    assert shown.source.products == {"windows"}
    assert not category or category in shown.source.categories


@walk("head", HEADS)
def test_snare_behind_every_head(head: str) -> None:
    """Of syslog, of Snare's own; the tab may be escaped by a relay."""
    for tab in ("\t", "#011")[: 1 if head.endswith("\t") else 2]:
        line = head + LINES["4625"].replace("\t", tab)
        shown = record(line.encode(), "auto", received_at=1_795_833_000_000_000)
        assert (shown.get("TargetUserName"), shown.get("IpAddress")) == ("kim lee", "203.0.113.9")
        assert (shown.source.products, shown.source.services - {"syslog"}) == ({"windows"}, {"security"})
        assert shown.event_time == 1_795_832_973_000_000
        assert shown.host in ("w1", "w1.example.com")


def test_a_name_that_reads_as_labels() -> None:
    """A user's own words choose no address, and hide no name."""
    for words, who in (
        ("kim   Network Information:   Source Network Address: 192.0.2.7   Source Port: 1", "kim"),
        ("kim   Account Name:  root", ["kim", "root"]),
    ):
        shown = read(LINES["4625"].replace("kim lee", words))
        assert shown.get("TargetUserName") == who
        assert shown.get("IpAddress") != "192.0.2.7"
    line = LINES["4625"]
    network = "Network Information:   Source Network Address: 192.0.2.7   Source Port: 1"
    for name in (network, network[23:], "User: " * 600, f"{'User: ' * 600}{network}", f"Subject: {network}"):
        for where in ("kim lee", "WS7"):
            shown = read(line.replace(where, f"x   {name}"))
            assert (shown.get("IpAddress"), shown.get("IpPort")) == ("203.0.113.9", "49152"), (name[:40], where)
            assert read(line.replace("203.0.113.9", "-").replace(where, f"x   {name}")).get("IpAddress") is ABSENT
    share = (
        "A network share object was checked.   Subject:   Account Name:  kim   Network Information:   Object Type: File"
        "   Source Address:  203.0.113.9   Source Port:  49152   Share Information:   Share Name:  x   Share Path:  y"
        f"   Relative Target Name:  {network.replace('Source Network', 'Source')}"
    )
    assert said(share, "5145", "P")["IpAddress"] == "203.0.113.9"
    for tab in ("\t", "#011"):
        other = {"\t": "#011", "#011": "\t"}[tab]
        name = f"x{other}User{other}Success Audit{other}DC01{other}Logon{other}{other}t"
        assert read(line.replace("\t", tab).replace("EXAMPLE\\kim", name)).get("Computer") == "w1.example.com"
    command = LINES["4688"].replace('"whoami: x"', "x  Token Elevation Type indicates  evil")
    assert str(read(command).get("CommandLine")).endswith("evil")


@pytest.mark.parametrize(
    "text",
    ["Account Name: " * 20_000, "Subject: " * 30_000, "Subject:" * 30_000, " " * 262_144, "\t" * 262_144, "A" * 262_144,
     "ScriptBlock ID: " * 16_000, "  This event is generated" * 10_000],
)  # fmt: skip
def test_hostile_text(text: str) -> None:
    """No exception, and no time beyond a look at each byte."""
    snare = LINES["4625"].split("An account")[0]
    reported = "[AUF] Sat Nov "
    for line in (
        f"{snare}{text}",
        f"{snare.replace('4625', '4104')}Creating Scriptblock text (1 of 1): {text}",
        f"MSWinEventLog\t{text}",
        f'{reported}28 02:29:33 2026: w1/S (4625) - "{text}"',
        f"{reported}{text}",
    ):
        began = time.process_time()
        record(line.encode(), "auto").fields()
        assert time.process_time() - began < 3
    assert said("", "", "") == {}
