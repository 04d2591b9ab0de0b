"""An entry of the journal becomes a line of syslog: what decoders read of it is what the entry says."""

from __future__ import annotations

import pytest

from vedette.decode.decoder import record
from vedette.inputs.entries import MAX_ELEMENT, MAX_KEPT, Lines
from vedette.model.event import MAX_EVENT, LogSource

CURSOR = {"__CURSOR": "s=1;i=1;b=1;m=1;t=1;x=1", "__REALTIME_TIMESTAMP": "1795414906390183"}
SSHD = {
    **CURSOR, "_HOSTNAME": "web-1", "PRIORITY": "6", "SYSLOG_FACILITY": "4", "SYSLOG_IDENTIFIER": "sshd",
    "SYSLOG_PID": "9", "_PID": "812", "_COMM": "sshd", "_EXE": "/usr/sbin/sshd", "_CMDLINE": 'sshd: "x" [priv]',
    "_SYSTEMD_UNIT": "ssh.service", "_TRANSPORT": "syslog", "_UID": "0",
    "MESSAGE": "Failed password for root from 192.0.2.7 port 4711 ssh2",
}  # fmt: skip


def entry(**fields: str | bytes) -> dict[bytes, list[bytes]]:
    return {name.encode(): [value if isinstance(value, bytes) else value.encode()] for name, value in fields.items()}


def test_a_line_of_sshd() -> None:
    """The same fields and log sources as the syslog line of that message, and those of journald."""
    line, cut = Lines().line(entry(**SSHD))
    assert not cut
    assert line == (
        b"<38>1 2026-11-23T06:21:46.390183Z web-1 sshd 812 - "
        b'[journal _TRANSPORT="syslog" _UID="0" _COMM="sshd" _EXE="/usr/sbin/sshd" '
        b'_CMDLINE="sshd: \\"x\\" [priv\\]" _SYSTEMD_UNIT="ssh.service"] '
        b"Failed password for root from 192.0.2.7 port 4711 ssh2"
    )
    event = record(line, "syslog", logsource=LogSource("linux"))
    plain = record(
        b"<38>Nov 23 06:21:46 web-1 sshd[812]: Failed password for root from 192.0.2.7 port 4711 ssh2", "syslog"
    )
    for name in ("program", "pid", "hostname", "facility", "severity", "message", "user", "src_ip", "src_port"):
        assert event.get(name) == plain.get(name) is not None
    assert event.source.services == plain.source.services >= {"sshd", "auth", "syslog"}
    assert event.event_time == 1795414906390183
    assert event.get("_CMDLINE") == event.get("process.command_line") == 'sshd: "x" [priv]'
    assert event.get("process.executable") == "/usr/sbin/sshd"
    assert event.get("systemd.unit") == "ssh.service"


@pytest.mark.parametrize(
    "message",
    [
        b"two\nlines", b"[x y=\"z\"] text", b"\xff\x00 bytes", b"", b"<13>1 - - - - - - forged", b'{"user": "x"}',
        b'[journal _EXE="/forged"] x', b"ends in a newline\n",
    ],
)  # fmt: skip
def test_a_message_of_any_bytes(message: bytes) -> None:
    """It stands in the line as it is, and says nothing of what journald says."""
    line, _ = Lines().line(entry(**{**SSHD, "MESSAGE": message}))
    assert line.endswith(b"] " + message)
    event = record(line, "syslog")
    assert event.get("message") == message.rstrip(b"\n\0").decode("utf-8", "replace")
    assert (event.get("_EXE"), event.get("program")) == ("/usr/sbin/sshd", "sshd")


def test_words_of_the_header() -> None:
    """Blanks and controls in a name do not move the rest; what is missing or no number has a default."""
    line, _ = Lines().line(entry(SYSLOG_IDENTIFIER="my app\n", PRIORITY="x", SYSLOG_FACILITY="99", _COMM="y"))
    assert line == b'<14>1 - - my_app_ - - [journal _COMM="y"] '
    line, _ = Lines().line(entry(_TRANSPORT="kernel", SYSLOG_IDENTIFIER="kernel", MESSAGE="x", _HOSTNAME="h"))
    event = record(line, "syslog")
    assert (event.get("facility"), event.get("program")) == ("kern", "kernel")
    assert "kernel" in event.source.services


def test_fields_that_are_asked_for() -> None:
    """They stand beside those that are always kept, and journalctl is asked for them."""
    lines = Lines(["SHOP", "_UID"])
    assert lines.wanted.count(b"_UID") == 1
    assert b"SHOP" in lines.wanted
    event = record(lines.line(entry(MESSAGE="x", SHOP="7")).data, "syslog")
    assert event.get("SHOP") == event.get("journal.SHOP") == "7"


def test_fields_that_would_forge_the_header() -> None:
    """A field of the name of another field does not replace it."""
    event = record(Lines(["program"]).line(entry(**{**SSHD, "program": "x"})).data, "syslog")
    assert event.get("program") == "sshd"


@pytest.mark.parametrize(
    ("fields", "kind"),
    [({"_AUDIT_TYPE": "1123"}, "USER_CMD"), ({"_AUDIT_TYPE": "1334", "MESSAGE": "AUDIT1334 prog-id=1 op=LOAD"}, "BPF")],
)
def test_an_audit_record(fields: dict[str, str], kind: str) -> None:
    """It is one as auditd writes it: type, id, time, decoded values, log source."""
    whole = {
        **CURSOR, "_TRANSPORT": "audit", "SYSLOG_IDENTIFIER": "audit", "_AUDIT_ID": "77",
        "_SOURCE_REALTIME_TIMESTAMP": "1795414906123000", "MESSAGE": "USER_CMD pid=5 acct=\"root\" cmd=6C73202D6C",
        **fields,
    }  # fmt: skip
    event = record(Lines().line(entry(**whole)).data, "syslog")
    assert (event.get("type"), event.get("audit_id")) == (kind, "1795414906.123:77")
    assert "auditd" in event.source.services
    if kind == "USER_CMD":
        assert (event.get("cmd"), event.get("user")) == ("ls -l", "root")


@pytest.mark.parametrize("name", ["_SOURCE_REALTIME_TIMESTAMP", "_AUDIT_ID", "__REALTIME_TIMESTAMP"])
@pytest.mark.parametrize("digits", [21, 5000])
def test_a_number_of_any_length(name: str, digits: int) -> None:
    """A sender's number above 64 bits makes no audit record of an entry, and takes no line away."""
    whole = {
        **CURSOR, "_TRANSPORT": "audit", "_AUDIT_TYPE": "1123", "_AUDIT_ID": "77",
        "_SOURCE_REALTIME_TIMESTAMP": "1795414906123000", "MESSAGE": "USER_CMD pid=5", name: "9" * digits,
    }  # fmt: skip
    is_record = name == "__REALTIME_TIMESTAMP"
    message = b" type=USER_CMD msg=audit(1795414906.123:77): pid=5" if is_record else b" USER_CMD pid=5"
    assert Lines().line(entry(**whole)).data.endswith(message)


def test_a_container() -> None:
    """What Docker's and podman's log drivers add are fields, also by their ECS names; JSON is read."""
    line = Lines().line(entry(MESSAGE='{"level": "warn"}', CONTAINER_NAME="web", CONTAINER_ID="ab12", IMAGE_NAME="i"))
    event = record(line.data, "syslog")
    assert [event.get(name) for name in ("container.name", "container.id", "IMAGE_NAME", "level")] == [
        "web", "ab12", "i", "warn",
    ]  # fmt: skip


def test_bounds() -> None:
    """A value, all values and the line are cut, and flagged; the fields that journald vouches for come first."""
    line, cut = Lines().line(entry(MESSAGE="x", CONTAINER_NAME="y" * (MAX_KEPT + 1)))
    assert cut
    assert record(line, "syslog").get("CONTAINER_NAME") == "y" * MAX_KEPT
    many = {**entry(MESSAGE="x", _EXE="/bin/x"), b"CONTAINER_TAG": [b'"' * MAX_KEPT] * 1000}
    line, cut = Lines().line(many)
    assert cut
    assert len(line) < 2 * MAX_ELEMENT + 1024
    assert (record(line, "syslog").get("_EXE"), record(line, "syslog").get("message")) == ("/bin/x", "x")
    line, cut = Lines().line(entry(MESSAGE="x" * (MAX_EVENT + 1)))
    assert (len(line), cut) == (MAX_EVENT, True)
