"""What a configuration redacts though another part of it needs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from vedette.cli.main import main
from vedette.config.hidden import EXAMPLES, warnings
from vedette.config.read import parse
from vedette.decode.entities import KINDS
from vedette.sinks.settings import ENTITIES

BLOCK = '[response]\nenabled = true\ndry_run = true\n[[response.block]]\nrules = ["*"]\n'
CEF = '[[sink]]\ntype = "file"\nname = "siem"\nformat = "cef"\npath = "/var/log/siem"\n'
SLACK = '[[sink]]\ntype = "webhook"\nname = "chat"\nurl = "https://chat.example/x"\ntemplate = "slack"\n'
GENERIC = '[[sink]]\ntype = "webhook"\nname = "any"\nurl = "https://any.example/x"\n'
PAGER = '[[sink]]\ntype = "webhook"\nname = "page"\ntemplate = "pagerduty"\ntoken_file = "/etc/vedette/key"\n'
SYSLOG = '[[sink]]\ntype = "syslog"\nname = "log"\naddress = "192.0.2.1:6514"\n'
KAFKA = '[[sink]]\ntype = "kafka"\nname = "bus"\nbrokers = ["192.0.2.1:9092"]\ntopic = "alerts"\n'
OTLP = '[[sink]]\ntype = "otlp"\nname = "otel"\nurl = "http://192.0.2.1:4318/v1/logs"\n'


def warned(text: str, redact: str) -> list[str]:
    return [*warnings(parse(f"{text}[[redact]]\n{redact}\n"))]


@pytest.mark.parametrize(
    ("redact", "why"),
    [
        ('kinds = ["ip"]', "ip (mask)"),
        ('action = "hash"\nkinds = ["ip", "user"]', "ip (hash)"),
        ('patterns = ["ipv6"]', "ip (mask)"),
        (r"expressions = ['203\.0\.113\.[0-9]+']", "ip (mask)"),
        ('action = "drop"\nfields = ["src_ip"]', "ip of src_ip (drop)"),
        ('fields = ["Source*"]', "ip of source.ip (mask)"),
    ],
)
def test_an_address_to_block(redact: str, why: str) -> None:
    """However it is redacted."""
    assert warned(BLOCK, redact) == [f"response.block[0]: {why} is redacted: no such address is blocked"]


def test_the_field_of_an_address() -> None:
    """By the field that the block names, also when only a pattern knows what stands in it."""
    named = BLOCK + 'field = "attacker"\n'
    for redact, action in (('fields = ["att*"]', "mask"), ('action = "hash"\nfields = ["attacker"]', "hash"),
                           ('patterns = ["ipv4"]', "mask"), ("expressions = ['attacker=.*']", "mask")):  # fmt: skip
        line = f"response.block[0].field: attacker is redacted ({action}): none of its addresses is blocked"
        assert warned(named, redact) == [line]
    assert warned(named, 'fields = ["user"]\npatterns = ["card", "password", "email"]') == []


@pytest.mark.parametrize(
    ("sink", "hidden"),
    [
        (CEF, "host (mask), ip (mask), user (mask)"), (SLACK, "host (mask), ip (mask), user (mask)"), (GENERIC, ""),
        (PAGER, "host (mask)"), (SYSLOG, "host (mask)"), (KAFKA, ""), (OTLP, "host (mask)"),
        (KAFKA + 'key = "entity"\n', "host (mask), ip (mask), user (mask)"),
    ],
)  # fmt: skip
def test_a_form_of_a_sink(sink: str, hidden: str) -> None:
    """Each sink whose form has places for what is redacted; one that sends the alert as it is has none."""
    lines = warned(sink, 'kinds = ["ip", "user", "host"]')
    assert [line.partition("redacted: ")[2] for line in lines] == ([hidden] if hidden else [])
    assert warned(sink, 'patterns = ["card"]') == []


def test_nothing_to_say() -> None:
    """Without redaction, without response, and of one that is off."""
    assert [*warnings(parse(BLOCK + CEF))] == []
    assert warned("", 'kinds = ["ip"]') == []
    assert warned(BLOCK.replace("enabled = true", "enabled = false"), 'kinds = ["ip"]') == []
    assert set(EXAMPLES) == set(ENTITIES) == set(KINDS)


def test_the_command(tmp_path: Path) -> None:
    """It warns, and is no fault."""
    path = tmp_path / "vedette.toml"
    path.write_text(f'[agent]\ndata_dir = "{tmp_path}"\n{BLOCK}{CEF}[[redact]]\nkinds = ["ip"]\n')
    result = CliRunner().invoke(main, ["check", "-c", str(path)])
    assert result.exit_code == 0, result.output
    assert "warning: response.block[0]: ip (mask) is redacted: no such address is blocked" in result.output
    assert "warning: sink siem: its form names what is redacted: ip (mask)" in result.output
