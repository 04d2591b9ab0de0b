"""Explain: predicates, literals, and the truth of every part of a condition; and which rules are dead."""

from __future__ import annotations

from vedette.engine.match import Engine
from vedette.model.event import LogSource
from vedette.plan import reach
from vedette.rules import build
from vedette.rules.authoring import explain
from vedette.rules.build import cost_of
from vedette.rules.ruleset import RuleSet

RULE = """title: t
logsource: {product: linux, service: sshd}
detection:
    selection:
        message|startswith: Failed
        user: [root, admin]
    filter_local:
        src_ip|cidr: 127.0.0.0/8
    condition: selection and not 1 of filter_*
"""
LINE = b"<38>Nov 20 10:00:00 web1 sshd[7]: Failed password for %s from %s port 22 ssh2"


def engine_of(text: str) -> tuple[Engine, RuleSet]:
    rules = build.read(text)
    plan = build.from_rules(rules)
    assert not plan.refused
    return Engine(plan, route=False), rules


def explained(text: str, raw: bytes, codec: str = "auto") -> list[str]:
    engine, rules = engine_of(text)
    names = build.part_names(rules, engine.plan.rules[0])
    return list(explain.on_event(engine, 0, raw, codec, names=names))


def test_what_a_rule_is_made_of() -> None:
    """Every predicate with its place, and the literals."""
    engine, _ = engine_of(RULE)
    text = "\n".join(explain.rule(engine.plan, engine.evaluator, 0))
    assert "predicate 0: message begins with 'failed' [group 0 bit 0]" in text
    assert "predicate 3: src_ip is in 127.0.0.0/8 [group 2 bit 0]" in text
    assert "every event it matches contains one of: 'failed" in text
    assert "and one of these, since those are common: 'admin', 'root'" in text


def test_what_could_be_searched_for() -> None:
    """Every clause with its share, guessed or of a sample; those that are searched for are marked."""
    engine, rules = engine_of(RULE)
    guessed = list(explain.choice(engine.plan, 0))
    assert [line.split(",")[0].strip() for line in guessed] == ["searched", "searched"]
    assert all("guessed in 30.00% of events" in line or "60.00%" in line for line in guessed)
    shares = list(explain.choice(engine.plan, 0, cost_of(rules, b"Failed for root\nx\nfailed\nadmin failed\n")))
    assert any("in 75.00% of the sample: 'failed" in line for line in shares)


def test_why_it_fires() -> None:
    """The tree follows the condition, under the author's names, with the event's values."""
    lines = explained(RULE, LINE % (b"root", b"203.0.113.9"))
    assert lines[1] == "  MATCH"
    assert lines[2].startswith("  log source: ")
    assert lines[-9:] == [
        "  prefilter: the event contains a literal",
        "  true  all of",
        "    true  selection: all of",
        "      true  message begins with 'failed' [message = 'Failed password for root from 203.0.113.9 port 22 ssh2']",
        "      true  one of",
        "        true  user is 'root' [user = 'root']",
        "        false user is 'admin' [user = 'root']",
        "    true  not",
        "      false filter_local: src_ip is in 127.0.0.0/8 [src_ip = '203.0.113.9']",
    ]


def test_why_it_does_not() -> None:
    """The first false part and the prefilter tell; what is absent is called so."""
    text = "\n".join(explained(RULE, LINE % (b"bob", b"203.0.113.9")))
    assert "no match" in text
    assert "false user is 'root' [user = 'bob']" in text
    text = "\n".join(explained(RULE, b'{"user": null, "src_ip": {"a": 1}}'))
    assert "the event contains no literal" in text
    assert "message is absent" in text
    assert "user is null" in text
    assert "src_ip is an object" in text


def test_undecided() -> None:
    """A pattern that takes too long leaves the truth open, up to the whole."""
    text = RULE.replace("user: [root, admin]", "user|re: (?=a)(a|aa)+$")
    lines = explained(text, b'{"message": "Failed", "user": "%s"}' % (b"a" * 60 + b"!"))
    assert "UNDECIDED" in lines[1]
    assert any(line.strip().startswith("open  all of") for line in lines)


# --- dead rules


def why(text: str, *inputs: tuple[str, LogSource]) -> str | None:
    engine, _ = engine_of(text)
    return reach.dead(engine.plan, engine.plan.rules[0], inputs)


WEB = "title: t\nlogsource: {category: webserver}\ndetection: {s: {%s}, t: {%s}, condition: %s}\n"


def test_rules_whose_log_source_no_input_has() -> None:
    """A rule about another product is dead; one input that fits is enough."""
    syslog = ("syslog", LogSource(product="linux"))
    assert why(RULE, syslog) is None
    assert "linux//sshd" in str(why(RULE, ("text", LogSource(product="linux")), ("access", LogSource())))
    assert why(RULE, ("text", LogSource()), syslog) is None


def test_rules_whose_field_no_decoder_gives() -> None:
    """Where the format is closed, a field that it lacks makes what needs it false for ever."""
    access = ("access", LogSource())
    assert why(WEB % ("cs-method: GET", "c-ip: x", "s"), access) is None
    assert "'nosuch'" in str(why(WEB % ("nosuch: GET", "c-ip: x", "s and t"), access))
    assert why(WEB % ("nosuch: GET", "c-ip: x", "s or t"), access) is None
    assert why(WEB % ("nosuch: GET", "c-ip: x", "t and not s"), access) is None
    assert why(WEB % ("nosuch: null", "c-ip: x", "s and t"), access) is None
    assert why(WEB % ("nosuch: GET", "c-ip: x", "s"), access, ("json", LogSource(category="webserver"))) is None
    assert why(WEB % ("cs-method: GET", "c-ip: x", "s"), ("text", LogSource(category="webserver")), access) is None
    assert "'nosuch'" in str(why(WEB % ("c-ip|fieldref: nosuch", "c-ip: x", "s"), access))


def test_what_a_correlation_is_made_of() -> None:
    """Its kind, rules, groups, condition, and when it is decided; each kind of condition in words."""
    body = "type: %s\n  rules: [t, c]\n  timespan: 5m\n  group-by: [who]\n"
    text = RULE.replace("title: t", "title: t\nname: t") + "---\n" + RULE.replace("title: t", "title: c\nname: c")
    text = text.replace("Failed", "Accepted", 1) + "---\ntitle: C\ncorrelation:\n  "

    def explained(more: str, kind: str = "temporal") -> list[str]:
        engine, _ = engine_of(text + body % kind + more)
        return list(explain.correlation(engine.plan, engine.plan.correlations[-1]))

    lines = explained("  aliases: {who: {t: user, c: src_ip}}\n")
    assert "temporal within 300 s" in lines[1]
    assert lines[2].endswith(", who is its user")
    assert lines[4:] == [
        "  for each who; an event without one is in no group", "  when temporal >= 2", "  decided when an event arrives"
    ]  # fmt: skip
    assert explained("  condition: t and not c\n")[5] == "  when there is rule 0 and none of rule 1"
    lines = explained("  condition: {field: n, percentile: 90, gt: 5, lt: 9}\n", "value_percentile")
    assert lines[5] == "  when value_percentile 90 of n > 5 and < 9"
    assert lines[6].startswith("  decided when its window is over")
