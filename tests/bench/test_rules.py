"""bench/rules.py: rule sets are reproducible Sigma and hit the shares that were asked."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
import yaml

from bench import rules
from bench.traffic import lines


@pytest.fixture(scope="module")
def sample() -> list[bytes]:
    return list(lines(1, 20_000))


def parsed(rule: str) -> Any:
    return yaml.load(rule, yaml.CSafeLoader)


def test_reproducible(sample: list[bytes]) -> None:
    """A rule set is a function of its arguments."""
    assert rules.rules(3, 100, sample) == rules.rules(3, 100, sample)
    assert rules.rules(3, 100, sample) != rules.rules(4, 100, sample)


def test_count_and_mix(sample: list[bytes]) -> None:
    """As many rules as asked, with unique ids; 60 % contains, 20 % regex, 20 % several among the untuned."""
    drawn = [parsed(text) for text in rules.rules(3, 500, sample, share=0.0)]
    assert len({uuid.UUID(rule["id"]) for rule in drawn}) == len(drawn) == 500
    titles = [rule["title"].split()[0] for rule in drawn]
    assert {kind: titles.count(kind) for kind in set(titles)} == {"Contains": 300, "Regex": 100, "Several": 100}
    for rule in drawn:
        names = set(rule["detection"]) - {"condition"}
        assert names
        assert any(name.partition("_")[0] in rule["detection"]["condition"] for name in names)


def test_tuned_rules_hit_the_share(sample: list[bytes]) -> None:
    """The literals of the tuned rules stand in about the share of lines that was asked, in later lines as well."""
    drawn = [parsed(text) for text in rules.rules(3, 1000, sample, share=0.01, alert_share=0.001)]
    tuned = [rule["detection"] for rule in drawn if rule["title"].startswith("Tuned")]
    tokens = [_tokens(detection) for detection in tuned]
    later = [line.lower() for line in lines(1, 60_000)][20_000:]
    candidates = sum(any(token in line for literals in tokens for token in literals) for line in later)
    assert 0.007 <= candidates / len(later) <= 0.013
    alerting = [token for detection in tuned if "filter" not in detection for token in _tokens(detection)]
    assert 0 < sum(any(token in line for token in alerting) for line in later) / len(later) <= 0.002


def _tokens(detection: dict[str, dict[str, list[str]]]) -> list[bytes]:
    return [token.lower().encode() for token in detection["selection"]["message|contains"]]


@pytest.mark.parametrize("share", [0.01, 1.0])
def test_few_rules_hit_high_shares(sample: list[bytes], share: float) -> None:
    """However few the rules and however many the candidates that were asked for."""
    drawn = [parsed(text) for text in rules.rules(3, 10, sample, share=share)]
    assert len(drawn) == 10
    tokens = [token for rule in drawn if rule["title"].startswith("Tuned") for token in _tokens(rule["detection"])]
    hit_share = sum(any(token in line.lower() for token in tokens) for line in sample) / len(sample)
    assert share * 0.9 <= hit_share <= share * 1.06


def test_rules_without_a_literal(sample: list[bytes]) -> None:
    """The share of rules that no prefilter can look for."""
    kinds = [parsed(text)["title"].split()[0] for text in rules.rules(3, 200, sample, always=0.05)]
    assert kinds.count("Without") == 10


def test_other_literals_are_rare(sample: list[bytes]) -> None:
    """Phrases and keywords of untuned rules do not stand in the sample."""
    text = b"\n".join(sample).lower()
    for rule in rules.rules(5, 300, sample, share=0.0):
        detection = parsed(rule)["detection"]
        for keyword in detection.get("keywords", []):
            assert keyword.lower().encode() not in text
