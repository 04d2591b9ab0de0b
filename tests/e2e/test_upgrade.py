"""An agent with the configuration of the release before: it starts as before and says what to write instead."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from bench.send import tcp
from tests.broker import own_port
from tests.e2e.agent import Agent, vedette
from tests.waits import until

PREVIOUS = (Path(__file__).parents[1] / "config" / "previous.toml").read_text("utf-8")
LINE = b"<86>Nov 20 09:15:40 web-1 sshd[1]: Failed password for root from 203.0.113.9 port 4711 ssh2\n"


@pytest.mark.long
def test_the_configuration_of_the_release_before(tmp_path: Path) -> None:
    """The documented file, with the settings in force that have another name now or none."""
    agent = Agent(tmp_path / "a", rules=None)
    agent.environment["VEDETTE_INTERNAL_SETTINGS"] = ""
    broker = f"mqtt://127.0.0.1:{own_port()}"
    numbers = itertools.count()
    text = re.sub(r"(?m)^paths = .*", lambda match: f'paths = ["{tmp_path}/{next(numbers)}.log"]', PREVIOUS)
    text = re.sub(r"(?m)^file = .*\n", "", text).replace('#format = "console"', 'format = "json"')
    text = text.replace("/var/lib/vedette", str(agent.data)).replace("127.0.0.1:514", f"127.0.0.1:{agent.port}")
    text = re.sub(r"(?m)^#(?=(segment_bytes|cache_bytes|limit) )", "", text)
    head, mark, uplink = text.partition("[uplink]\n")
    uplink = re.sub(r"(?m)^#(?=(type|url|keepalive|max_inflight|resend_after) )", "", uplink)
    uplink = uplink.replace('type = "directory"', 'type = "mqtt"').replace("mqtts://region.example:8883", broker)
    text = head + mark + uplink
    agent.config.write_text(text)
    checked = vedette("check", "-c", agent.config, code=0)
    assert "uplink.url: is now url of [broker]" in checked.stderr
    agent.up()
    try:
        tcp(("127.0.0.1", agent.port), LINE)
        until("the event", lambda: agent.input("syslog")["judged"] == 1)
        status = agent.status()
        assert status["uplink"]["broker"] == broker
        said = [entry["reason"] for entry in agent.said("config_old_name")]
        assert len(said) == len(set(said)) == 7, said
    finally:
        agent.stop()
