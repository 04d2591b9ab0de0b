"""A value under its format's escapes is found by its own text, by prefilter as without: one claim for every decoder.

``test_property.py`` draws rules and events apart; here the rule asks for the very value that the event holds.
"""

from __future__ import annotations

import zlib

import hypothesis.strategies as st
from hypothesis import given

from tests.deep import examples
from tests.engine import drawn
from tests.engine.test_property import agree, rule
from vedette.plan import plan as plans
from vedette.plan.ir import Leaf, Op, Predicate, fold

PLAIN = "abck019" + '"\\/|=];:%' * 2
TRICKY = st.text(st.sampled_from(PLAIN), min_size=3, max_size=9) | st.text(
    st.sampled_from(PLAIN + "K\u017f\u212a'<>&#,. \t"), min_size=3, max_size=9
)


def _sd(text: str) -> str:
    return "".join("\\" + char if char in '"\\]' else char for char in text)


@st.composite
def holder(draw: st.DrawFn) -> tuple[str, str, str]:
    """A field's name, the value it should have, and the event that gives it."""
    text = draw(TRICKY)
    head = "<14>Nov 20 10:00:00 web1 x: "
    json_text = draw(drawn.json_string(text))
    hexed = text.encode().hex().upper()
    xml = draw(drawn._xml(text))
    caddy = f'{{"status": 1, "request": {{"method": 1, "uri": 2, "headers": {{"Referer": {json_text}}}}}}}'
    choice = draw(st.integers(0, 17))
    return (
        ("a1", text, f"type=EXECVE msg=audit(1.5:7): a1={hexed} argc=2"),
        ("a1", text, f"{head}type=EXECVE msg=audit(1.5:7): a1[0]={hexed[:4]} a1[1]={hexed[4:]} argc=2"),
        ("name", text, f"type=PATH msg=audit(1.5:7): item=0 name={hexed} nametype=CREATE"),
        ("process.title", text, f"type=PROCTITLE msg=audit(1.5:7): proctitle={hexed}"),
        ("user", text, f"type=USER_AUTH msg=audit(1.5:7): msg='op=x acct={hexed} exe=\"x\"'"),
        ("", text, f"type=EXECVE msg=audit(1.5:7): a1={hexed} argc=2"),
        ("CommandLine", text, f'{head}<Event><EventData><Data Name="CommandLine">{xml}</Data></EventData></Event>'),
        ("process.command_line", text, f"<Event><EventData><Data Name='CommandLine'>{xml}</Data></EventData></Event>"),
        ("", text, f"<Event><EventData><Data Name='CommandLine'>{xml}</Data></EventData></Event>"),
        ("msg", text.strip(), f"{head}CEF:0|v|p|1|2|n|3|a=b msg={drawn._cef(text.strip(), False)} c=d"),
        ("deviceVendor", text, f"CEF:0|{drawn._cef(text, True)}|p|1|2|n|3|a=b"),
        ("s@1.p", text, f'<165>1 2026-08-01T10:00:00Z web1 app 12 ID [s@1 p="{_sd(text)}"] x'),
        ("CommandLine", text, f'{{"Event": {{"System": {{}}, "EventData": {{"CommandLine": {json_text}}}}}}}'),
        ("Image", text, f'{{"winlog": {{"event_data": {{"Image": {json_text}}}}}}}'),
        ("src_ip", text, f'{{"source": {{"ip": {json_text}}}}}'),
        ("c-useragent", text, f'{{"ts": 1, "_path": "http", "user_agent": {json_text}}}'),
        ("cs-referer", text, caddy),
        ("type", "EXECVE", f"{head}audit: type=1309 audit(1.5:7): a1={hexed}"),
    )[choice]  # fmt: skip


@examples(60)
@given(holder(), st.integers(0, 255))
def test_value_is_found(value: tuple[str, str, str], salt: int) -> None:
    """Whatever piece of the value is chosen as literal, the event is a candidate and matches."""
    field, text, line = value
    op = Op.EXACT if field and text and salt % 2 else Op.CONTAINS
    predicates = [Predicate(field, op, fold(text), False)]
    plan = plans.build(
        [rule(0, Leaf(0))],
        predicates,
        cost=lambda literal: zlib.crc32(b"%d" % salt + literal) / 2**32,
    )
    assert agree(plan, [drawn.Drawn("auto", line.encode(), "")]) == {(0, 0)}, line
