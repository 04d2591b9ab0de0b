"""Programs that tests of pushes start: built by ``make otelcol`` and ``make promtail``, or others of this host.

Fluent Bit, Vector and Logstash are in none of the registries that the project builds from (Debian 12, PyPI, npm,
crates.io, Maven Central), so a host that has them, or ``VEDETTE_FLUENT_BIT``, ``VEDETTE_VECTOR`` and
``VEDETTE_LOGSTASH``, run their rows; elsewhere these are skipped. A row of ``PUSHES`` is an output of theirs.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

_BUILT = Path(__file__).parents[1] / "build"


def _program(name: str) -> str | None:
    built = _BUILT / name / name
    return (
        os.environ.get(f"VEDETTE_{name.upper().replace('-', '_')}")
        or shutil.which(name)
        or (str(built) if built.exists() else None)
    )


COLLECTOR, PROMTAIL = _program("otelcol"), _program("promtail")
needs_collector = pytest.mark.skipif(
    COLLECTOR is None, reason="no OpenTelemetry Collector: make otelcol, or VEDETTE_OTELCOL=PROGRAM"
)
needs_promtail = pytest.mark.skipif(PROMTAIL is None, reason="no Promtail: make promtail, or VEDETTE_PROMTAIL=PROGRAM")


class Push(NamedTuple):
    """``output``: what the program's configuration says of where to send, to 127.0.0.1 at {port}."""

    program: str
    protocol: str
    output: str


PUSHES = (
    Push("fluent-bit", "lines", "Name http\n    URI /events\n    Format json_lines\n    Compress gzip"),
    Push("fluent-bit", "otlp", "Name opentelemetry\n    Logs_uri /v1/logs"),
    Push("fluent-bit", "bulk", "Name es\n    Index logs\n    Suppress_Type_Name On"),
    Push("fluent-bit", "hec", "Name splunk\n    Splunk_Token x\n    Tls Off"),
    Push("fluent-bit", "loki", "Name loki\n    Labels job=auth"),
    Push("vector", "lines", 'type = "http"\nuri = "http://127.0.0.1:{port}/events"\nencoding.codec = "json"\n'
         'framing.method = "newline_delimited"\ncompression = "gzip"'),
    Push("vector", "bulk", 'type = "elasticsearch"\nendpoints = ["http://127.0.0.1:{port}"]\napi_version = "v8"\n'
         'bulk.index = "logs"'),
    Push("vector", "hec", 'type = "splunk_hec_logs"\nendpoint = "http://127.0.0.1:{port}"\ndefault_token = "x"\n'
         'encoding.codec = "json"'),
    Push("vector", "loki", 'type = "loki"\nendpoint = "http://127.0.0.1:{port}"\nencoding.codec = "text"\n'
         'labels.job = "auth"'),
    Push("logstash", "lines",
         'http {{ url => "http://127.0.0.1:{port}/events" http_method => "post" format => "json_batch" }}'),
    Push("logstash", "bulk", 'elasticsearch {{ hosts => ["http://127.0.0.1:{port}"] index => "logs"'
         " ilm_enabled => false manage_template => false }}"),
)  # fmt: skip


def configured(push: Push, lines: Path, port: int, folder: Path) -> list[str]:
    """The command that sends ``lines`` as ``push`` says, its files in ``folder``. Skips where the program is not."""
    program = _program(push.program)
    if program is None:
        name = push.program.upper().replace("-", "_")
        pytest.skip(f"no {push.program} here, nor in a registry that is reached: VEDETTE_{name}=PROGRAM names one")
    output, config = push.output.format(port=port), folder / "sender.conf"
    if push.program == "fluent-bit":
        config.write_text(
            f"[SERVICE]\n    Flush 1\n[INPUT]\n    Name tail\n    Path {lines}\n    Read_from_Head On\n"
            f"[OUTPUT]\n    {output}\n    Match *\n    Host 127.0.0.1\n    Port {port}\n"
        )
        return [program, "-c", str(config)]
    if push.program == "vector":
        config = config.with_suffix(".toml")
        config.write_text(
            f'data_dir = "{folder}"\n[sources.file]\ntype = "file"\ninclude = ["{lines}"]\nread_from = "beginning"\n'
            f'[sinks.agent]\ninputs = ["file"]\nhealthcheck.enabled = false\n{output}\n'
        )
        return [program, "--config", str(config)]
    config.write_text(
        f'input {{ file {{ path => "{lines}" start_position => "beginning" sincedb_path => "{folder}/sincedb" }} }}\n'
        f"output {{ {output} }}\n"
    )
    return [program, "-f", str(config), "--path.data", str(folder / "data")]
