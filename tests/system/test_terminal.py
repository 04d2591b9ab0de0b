"""What strangers wrote acts on no terminal and begins no line, wherever it is shown."""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette.config.settings import LogSettings
from vedette.model.counters import Log
from vedette.runtime.agent import logs
from vedette.system.terminal import json_line, safe, shown

HOSTILE = st.text(
    alphabet=st.one_of(
        st.sampled_from("\x1b\x9b\x07\x08\r\n\x85\u2028\u2029\u202e\u2066\u200f\x7f\x00\t[];'\"\\{}"),
        st.characters(),
    ),
    max_size=40,
)


def acts(text: str, *, lines: int = 1) -> bool:
    """True when ``text`` has anything that a terminal may act on, or more lines than it should."""
    bad = any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") and c not in "\t\n" for c in text)
    turns = any(
        unicodedata.bidirectional(c) in ("RLE", "LRE", "RLO", "LRO", "PDF", "LRI", "RLI", "FSI", "PDI") for c in text
    )
    return bad or turns or len(text.splitlines()) > lines or any(c in text for c in "\u061c\u200e\u200f")


@given(HOSTILE)
def test_safe(text: str) -> None:
    """Nothing acts any more; what did not is as it was."""
    told = safe(text)
    assert not acts(told)
    assert "\n" not in told
    assert acts(text) or "\n" in text or told == text
    told.encode()


TEXT = HOSTILE.filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text))


@given(st.recursive(TEXT, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.just("k"), inner, max_size=2)))
def test_json_line(value: object) -> None:
    """JSON of anything is one line that nothing acts on, and parses to the same value."""
    told = json_line(value)
    assert not acts(told)
    assert json.loads(told) == value


@pytest.mark.parametrize("form", ["console", "json"])
@given(text=HOSTILE)
def test_the_agents_own_log(form: str, text: str) -> None:
    """A line of the agent's log is one line that nothing acts on, whatever a topic, a reason or a name is; and it
    begins as ours do, so that no value can pass for a line."""
    writer = logs._Writer()  # a new one, whose limit no example before has reached
    writer.use(LogSettings(format=form))  # type: ignore[arg-type]
    event = {
        "event": Log.BROKER_AWAY.value,
        "level": "warning",
        "reason": text,
        "several": [text],
        "raw": text.encode("utf-8", "replace"),
    }
    line = str(writer(None, "warning", event))
    assert not acts(line)
    assert "\n" not in line
    if form == "json":
        assert json.loads(line)["reason"] == text
    else:
        assert line.startswith("[warning")


def test_what_is_safe_is_shown_as_it_is() -> None:
    """Other values are left to the renderer: numbers, paths, and texts with umlauts and emoji."""
    for value in (7, None, "Zürich 🛰 \t", ["a"]):
        assert shown(value) is value
    assert repr(shown("a\nb\u202e")) == r"'a\x0ab\u202e'"


def test_the_configured_log() -> None:
    """By ``configure_logging`` and a real logger, too: one event, one line."""
    program = (
        "import structlog; from vedette.runtime.agent.logs import configure_logging;"
        "from vedette.config.settings import LogSettings;"
        "configure_logging(LogSettings());"
        r"structlog.get_logger().warning('broker_away', reason='x\x1b[2J', topic='a\n2026-11-21T00:00Z [info] forged')"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stderr
    assert said.count("\n") == 1
    assert "forged" in said
    assert "\x1b" not in said
