"""The Python API: compile rules, evaluate what Python has, read a raw log, as the guide shows it."""

from __future__ import annotations

import doctest
import inspect
import io
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

import pytest

import vedette
from vedette import Engine, Plan, compile_rules, correlate, evaluate, load_rules, read_log
from vedette.config.settings import RawLogSettings
from vedette.model.counters import Counters
from vedette.model.event import MAX_EVENT, Chunk
from vedette.rawlog.log import RawLog

RULE = """title: needle
logsource: {product: linux, service: sshd}
detection: {s: {message|contains: needle}, condition: s}
"""
HOT = "title: hot\nlogsource: {category: iot}\ndetection: {s: {temp|gt: 90}, condition: s}\n"


def test_compile_rules(tmp_path: Path) -> None:
    """Files, folders and text make one plan; what does not run is listed in it."""
    (tmp_path / "a.yml").write_text(RULE)
    (tmp_path / "bad.yml").write_text("title: [\n")
    plan = compile_rules(tmp_path, text=HOT)
    assert isinstance(plan, Plan)
    assert [rule.title for rule in plan.rules] == ["needle", "hot"]
    assert [(refusal.path, refusal.line) for refusal in plan.refused] == [(str(tmp_path / "bad.yml"), 2)]
    assert compile_rules(str(tmp_path / "a.yml")).rules == plan.rules[:1]
    assert compile_rules().rules == ()
    with pytest.raises(FileNotFoundError, match="no such rule file"):
        compile_rules(tmp_path / "nowhere")


def test_a_sample_chooses_literals() -> None:
    """With lines like those to be evaluated the rarer piece is searched."""
    text = RULE.replace("needle}", "'often<rarely'}")
    assert compile_rules(text=text, sample=b"rarely\n" * 9).literals == (frozenset({b"often"}),)
    assert compile_rules(text=text, sample=b"often\n" * 9).literals == (frozenset({b"rarely"}),)


def test_evaluate_takes_lines_and_mappings() -> None:
    """Bytes, texts with or without newline, and mappings of any kind; numbered from 1."""
    plan = compile_rules(text=RULE + "---\n" + HOT)
    events = [
        b"a needle",
        "another needle\n",
        "nothing",
        "",
        {"message": "needle", "temp": 99},
        MappingProxyType({"temp": 91.5}),
        "caf\u00e9 needle",
        {"temp": "90"},
    ]
    found = [(d.line, d.rule.title, d.fields) for d in evaluate(plan, events)]
    assert found == [
        (1, "needle", {"message": "a needle"}),
        (2, "needle", {"message": "another needle"}),
        (5, "needle", {"message": "needle"}),
        (5, "hot", {"temp": "99"}),
        (6, "hot", {"temp": "91.5"}),
        (7, "needle", {"message": "caf\u00e9 needle"}),
    ]


def test_the_old_name() -> None:
    """``judge`` is still there, with a warning that names the new one."""
    with pytest.warns(DeprecationWarning, match=r"vedette\.evaluate"):
        assert vedette.judge is evaluate


def test_evaluate_is_lazy_and_reads_the_format() -> None:
    """Events are taken as they are needed; the format says how they are read."""
    plan = compile_rules(text=RULE)
    line = '{"message": "no", "other": "needle"}'
    assert list(evaluate(plan, [line])) == []
    assert len(list(evaluate(plan, [line], format="text"))) == 1
    with pytest.raises(KeyError):
        list(evaluate(plan, [line], format="xml"))
    assert list(evaluate(plan, [])) == []
    assert len(list(evaluate(plan, (b"needle" for _ in range(10_000))))) == 10_000
    assert list(evaluate(plan, [b"x" * MAX_EVENT + b"needle"])) == []


def test_routing_is_the_engines() -> None:
    """A plan ignores log sources; an engine that routes asks a rule only about events of its own."""
    plan = compile_rules(text=RULE)
    line = b"<38>Nov 20 10:00:00 web1 sshd[7]: needle"
    assert len(list(evaluate(plan, [line]))) == 1
    assert len(list(evaluate(Engine(plan), [line]))) == 1  # sshd is a program of Linux
    assert len(list(evaluate(Engine(plan), [line], product="linux"))) == 1
    assert list(evaluate(Engine(plan), [line.replace(b"sshd", b"someapp")])) == []
    assert list(evaluate(Engine(plan), [b"needle"], product="linux")) == []
    assert len(list(evaluate(Engine(plan), [b"needle"], product="linux", service="sshd"))) == 1


def test_a_detection() -> None:
    """What a detection offers: the rule, the decoded event, a row like scan's."""
    (found,) = evaluate(compile_rules(text=RULE), [b"<38>Nov 20 10:00:00 web1 sshd[7]: needle"])
    assert found.record.host == "web1"
    assert found.rule.level == "medium"
    assert found.to_row("auth.log")["file"] == "auth.log"


FAILED = """title: failed
name: failed
logsource: {product: linux, service: sshd}
detection: {s: {message|startswith: Failed}, condition: s}
---
title: many
correlation: {type: event_count, rules: [failed], group-by: [hostname], timespan: 1m, condition: {gte: 3}}
"""


def test_correlate_lines_without_a_year() -> None:
    """RFC 3164 lines: the year is that of their receipt, which is now unless it is given."""
    plan = compile_rules(text=FAILED)
    lines = [f"<38>Nov 20 10:00:{second:02} web1 sshd[7]: Failed password for root" for second in range(3)]
    assert [found.line for found in correlate(plan, lines)] == [3]
    received_at = 1_795_000_000 * 1_000_000  # in November 2026
    (found,) = correlate(plan, lines, received_at=received_at)
    assert datetime.fromtimestamp(found.firing.first_time / 1e6, UTC) == datetime(2026, 11, 20, 10, tzinfo=UTC)
    assert found.group == {"hostname": "web1"}
    assert found.firing.count == 3
    (one,) = evaluate(compile_rules(text=RULE), ["Nov 20 10:00:00 w sshd[7]: needle"], received_at=received_at)
    assert one.record.event_time == found.firing.first_time


def test_read_log(tmp_path: Path) -> None:
    """What an agent stored, frame by frame, from any offset."""
    log = RawLog.open(tmp_path, RawLogSettings(), Counters())
    first = log.append(Chunk("in", "auto", 1, b"a\nneedle\n"))
    log.append(Chunk("in", "auto", 2, b"b\n"))
    frames = list(read_log(tmp_path))
    assert [frame.chunk.data for frame in frames] == [b"a\nneedle\n", b"b\n"]
    assert [frame.chunk.data for frame in read_log(tmp_path, first.end)] == [b"b\n"]
    events = [frame.chunk.data[a:b] for frame in frames for a, b in frame.chunk.spans()]
    assert [found.line for found in evaluate(compile_rules(text=RULE), events)] == [2]
    log.close()


def test_load_rules_refuses_what_is_no_bundle(tmp_path: Path) -> None:
    """A file that is no bundle, or that nobody trusted signed, raises ValueError with a reason."""
    path = tmp_path / "x.vbundle"
    path.write_bytes(b"not a bundle")
    with pytest.raises(ValueError, match=r"bundle|zip"):
        load_rules(path, ["ed25519:" + "A" * 43 + "="])
    with pytest.raises(OSError, match=r"gone\.vbundle"):
        load_rules(tmp_path / "gone.vbundle", [])


def test_the_package_offers_what_it_says() -> None:
    """Every name of ``__all__`` is there and documented; others are not."""
    for name in vedette.__all__:
        assert getattr(vedette, name) is not None
        if name != "__version__":
            assert inspect.getdoc(getattr(vedette, name))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = vedette.nonsense  # type: ignore[attr-defined]


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example of the package's docstring, with a rule folder and a log beside it."""
    folder = tmp_path / "rules" / "sigma"
    folder.mkdir(parents=True)
    (folder / "needle.yml").write_text(RULE)
    (tmp_path / "auth.log").write_bytes(b"x\na needle\n")
    monkeypatch.chdir(tmp_path)
    source = "".join(example.source for example in doctest.DocTestParser().get_examples(vedette.__doc__ or ""))
    printed: list[object] = []
    names = {
        "print": lambda *values: printed.append(values),
        "open": lambda name, _mode: io.BytesIO(Path(name).read_bytes()),
    }
    exec(source, names)  # noqa: S102 - that the example runs is the claim
    assert printed == [(2, "needle", {"message": "a needle"})]
