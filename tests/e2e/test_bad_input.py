"""Bad input to the real agent: each gets a clear answer, and the rest goes on."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.agent import Agent, few, vedette
from tests.waits import DEADLINE, until
from vedette.model.event import MAX_EVENT

pytestmark = pytest.mark.peer

ATTACK = b"<38>Nov 20 10:00:00 web1 sshd[7]: Failed password for root from 203.0.113.9 port 22 ssh2"
"""What the starter rule of that name finds."""


@pytest.mark.long
def test_bytes_that_are_no_lines(tmp_path: Path) -> None:
    """Over TCP and from a file: invalid UTF-8 and NUL are stored byte for byte, a line of 10 MB is cut, flagged and
    logged with its place, and the line after it is whole; each is an alert. A count that is none ends a connection."""
    agent, log = Agent(tmp_path / "a", rules=few(tmp_path / "rules")), tmp_path / "app.log"
    agent.configure(
        f'[[input]]\nname = "tcp"\ntype = "syslog"\ntcp = "127.0.0.1:{agent.port}"\n'
        f'[[input]]\nname = "file"\ntype = "file"\npaths = ["{log}"]\nformat = "syslog"\n'
        'logsource = { product = "linux" }\n'
    )
    noise = ATTACK.replace(b"port 22", b"\xff\xfe\x80 \x00 port 22")
    lines = [noise, ATTACK + b" " + b"x" * 10_000_000, ATTACK + b" after"]
    log.write_bytes(b"".join(line + b"\n" for line in lines))
    agent.up()
    try:
        with socket.create_connection(("127.0.0.1", agent.port), DEADLINE) as connection:
            connection.sendall(log.read_bytes())
        agent.settled(3, "tcp")
        with socket.create_connection(("127.0.0.1", agent.port), DEADLINE) as connection:
            connection.sendall(b"%d %s12x %s" % (len(ATTACK), ATTACK, ATTACK))
            with suppress(ConnectionError):
                assert connection.recv(1) == b""
        for name, last in (("file", []), ("tcp", [ATTACK])):
            counts = agent.settled(3 + len(last), name)["inputs"][name]
            assert (counts["judged"], counts["cut"]) == (3 + len(last), 1)
            assert [event.raw for event in agent.stored(name)] == [noise, lines[1][:MAX_EVENT], lines[2], *last]
        assert agent.input("tcp")["dropped"] == {"framing": 1}
        (refused,) = agent.said("framing_error")
        assert (refused["input"], refused["peer"]) == ("tcp", "127.0.0.1")
        places = [row.get("peer", row.get("path")) for row in agent.said("event_cut")]
        assert sorted(places) == sorted(["127.0.0.1", str(log)])
        assert sorted(row["flags"] == ["cut"] for row in agent.alerts()) == [False] * 5 + [True] * 2
    finally:
        agent.kill()


def test_a_truncated_frame(tmp_path: Path) -> None:
    """A raw log that ends within a frame: the rest is kept aside, told with file, place and reason, and the agent goes
    on; what was whole is there and judged."""
    # Over 3 s: two lives of an agent.
    agent = Agent(tmp_path / "a", rules=few(tmp_path / "rules"))
    agent.configure(f'[[input]]\nname = "in"\ntype = "syslog"\ntcp = "127.0.0.1:{agent.port}"\n')
    agent.up()
    with socket.create_connection(("127.0.0.1", agent.port)) as connection:
        for number in range(5):
            connection.sendall(ATTACK + b" %d\n" % number)
            until("the event", lambda number=number: agent.input()["stored"] == number + 1)
    agent.settled(5)
    agent.kill()
    (segment,) = (agent.data / "raw").glob("*.seg*")
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size - 20)
    agent.up()
    (told,) = agent.said("raw_log_cut")
    assert told["folder"] == str(agent.data / "raw")
    assert told["cut_bytes"] > 20
    assert told["reason"]
    status = agent.status()
    assert status["raw_log"]["recovery"]["cut_bytes"] == told["cut_bytes"]
    assert status["identity_broken"] == []
    kept = list((agent.data / "raw" / "damaged").iterdir())
    assert [path.stat().st_size for path in kept] == [told["cut_bytes"]]
    found = vedette("logs", "search", "-c", agent.config, "Failed password").stdout.splitlines()
    assert [line[-1] for line in found] == list("0123")
    with socket.create_connection(("127.0.0.1", agent.port)) as connection:
        connection.sendall(ATTACK + b" again\n")
    agent.settled(6)
    agent.kill()
    alerts = agent.alerts()
    assert sorted(alert["raw"][-1] for alert in alerts) == sorted("01234n")
