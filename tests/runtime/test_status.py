"""What a status says: which rules are dead and which only wait for an input."""

from __future__ import annotations

from vedette.config.read import parse
from vedette.engine.match import Engine
from vedette.rules.build import from_text
from vedette.runtime.rulesets.deadrules import dead_rules

RULES = """
title: of syslog
logsource: {product: linux, service: sshd}
detection: {s: {message|contains: needle}, condition: s}
---
title: of iot
name: iot
logsource: {category: iot, service: mqtt}
detection: {s: {topic|startswith: needle}, condition: s}
---
title: of access
logsource: {category: webserver}
detection: {s: {no_such_field: needle}, condition: s}
---
title: of windows
logsource: {product: windows, service: security}
detection: {s: {EventID: 4625}, condition: s}
---
title: more iot
correlation: {type: event_count, rules: [iot], timespan: 1m, condition: {gte: 3}}
---
title: refused
logsource: {product: linux}
detection: {s: {a: 1}, condition: t}
"""
AGENT = """
[agent]
id = "a"
[[input]]
name = "access"
type = "file"
paths = ["/var/log/access.log"]
format = "{format}"
"""
MQTT = '[broker]\nurl = "mqtt://127.0.0.1"\n[[input]]\nname = "mqtt"\ntype = "mqtt"\ntopics = ["#"]\n'


def test_dead_and_waiting() -> None:
    """Rules whose log source no input has wait for one, and so do correlations that need them; they are counted by what
    they wait for, after those that are refused or whose field no decoder gives."""
    engine = Engine(from_text(RULES))
    found = dead_rules(parse(AGENT.format(format="access")), engine)
    titles = [next(t for t in ("refused", "access", "windows", "more iot", "of iot", "?") if t in reason or t == "?")
              for reason in found.reasons]  # fmt: skip
    assert sorted(titles[:2]) == ["access", "refused"]
    assert sorted(titles[2:]) == ["?", "more iot", "of iot", "windows"]
    assert found.waiting == {
        "an MQTT input": 2, "an input with log source linux//sshd": 1, "an input with log source windows//security": 1,
    }  # fmt: skip


def test_other_inputs_other_dead_rules() -> None:
    """It depends on the inputs, too: when these change under the same rules, so does what is dead."""
    engine = Engine(from_text(RULES))
    assert len(dead_rules(parse(AGENT.format(format="access")), engine).reasons) == 6
    assert len(dead_rules(parse(AGENT.format(format="auto")), engine).reasons) == 3
    assert len(dead_rules(parse(AGENT.format(format="auto") + MQTT), engine).reasons) == 1


def test_each_reason_is_of_one_rule() -> None:
    """The reasons of a rule are found by its whole id, not by what stands in their text: other ids, paths, titles."""
    plan = from_text(
        RULES.replace("title: of windows", "title: of windows\nid: 6a1f0000-0000-4000-8000-000000000012")
        .replace("title: of access", "title: no_such_field too\nid: 6a1f0000-0000-4000-8000-000000000001")
        .replace("title: of syslog", "title: of syslog\nid: 6a1f0000-0000-4000-8000-000000000123")
    )  # fmt: skip
    found = dead_rules(parse(AGENT.format(format="access")), Engine(plan))
    ids = [one.id for one in plan.written] + [one.rule_id for one in plan.refused]
    for one in ids:
        assert len(found.of(one)) == 1
    titles = {one.id: one.title for one in plan.written}
    assert all(titles[one] in found.of(one)[0] for one in titles)
    assert found.of("6a1f0000-0000-4000-8000-00000000001") == found.of("?") == found.of("no_such_field") == []
