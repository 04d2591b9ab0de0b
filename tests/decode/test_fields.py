"""The table of fields: every decoder gives what its row declares and nothing else, and what the prefilter concludes
from the table holds for events.

Events are generated from the formats' own patterns, and are mutations of real lines: those of the rules' tests, of the
benchmark's traffic and, where they are at hand, of other projects' tests.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import benign, windows
from tests.decode import fields_page
from tests.decode.test_rendered import LINES
from tests.decode.test_vectors import DATA
from vedette.decode import access, cisco, fields, peers, syslog
from vedette.decode.aliases import ALIASES
from vedette.decode.codecs import CODECS
from vedette.decode.decoder import record
from vedette.decode.fields import TABLE
from vedette.decode.formats.base import Field, Gives, Provenance
from vedette.decode.formats.table import FORMATS, SHAPES
from vedette.decode.programs import PROGRAMS, key_values
from vedette.decode.values import from_json, scalars
from vedette.engine.prefilter import tolerant
from vedette.model.event import LogSource
from vedette.plan.ir import Op, Predicate
from vedette.plan.literals import NUMBER_GUARDS, Literals, clauses_of, folded, pieces, unescaped
from vedette.plan.witness import witness
from vedette.rules.authoring import cases

RULES = Path(__file__).parents[2] / "rules"


@cache
def events() -> list[tuple[bytes, str, str]]:
    """(event, codec, topic)."""
    found: list[tuple[bytes, str, str]] = []
    for path in RULES.rglob("*.test.yml"):
        for item in yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader):
            for part in item.get("sequence") or [item.get("match") or item.get("no_match")]:
                part = {key: value for key, value in part.items() if key != "at"} if isinstance(part, dict) else part
                found.append(cases._event(part))
    found += [(body, "auto", "") for body in benign.pool(benign.SYSLOG, Random(1), 200)]
    found += [(body, "auto", "") for body in benign.pool(benign.ACCESS, Random(1), 20)]
    found += [(event, "json", "") for event in itertools.islice(windows.events(1, 100), 100)]
    for name in ("cef_vectors.json", "vendor_syslog_lines.json", "sigma_regression.json"):
        if (DATA / name).exists():
            found += [(line.encode(), "auto", "") for line in texts(json.loads((DATA / name).read_text("utf-8")))]
    if (lines := DATA / "failed_login_lines.jsonl").exists():
        for line in lines.read_text("utf-8").splitlines():
            found += [(text.encode(), "auto", "") for text in texts(json.loads(line))]
    return [one for one in found if one[0] and b"\n" not in one[0]]


def texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value that may be an event, and every object as one."""
    if isinstance(value, str):
        if len(value) > 20:
            yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, dict):
        if len(value) > 3:
            yield json.dumps(value)
        for item in value.values():
            yield from texts(item)


def paths(value: object, prefix: str = "") -> Iterator[str]:
    """The names of fields, at any depth."""
    if isinstance(value, list):
        for item in value:
            yield from paths(item, prefix)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield prefix + name
            yield from paths(inner, f"{prefix}{name}.")


@cache
def pattern(clause: Literals) -> re.Pattern[bytes]:
    return re.compile(b"|".join(map(tolerant, sorted(clause))), re.IGNORECASE)


def holds(raw: bytes, clause: Literals) -> bool:
    """Whether the scan finds one of ``clause`` in ``raw``, or in the forms in which it is searched again."""
    return any(pattern(clause).search(form) for form in (raw, unescaped(raw), folded(raw)))


SAMPLES: Mapping[str, tuple[str, ...]] = {
    "transport": ("x",),
    "mqtt": ('{"a":1}', "x"),
    "kafka": ('{"a":1,"kafka":{"x":1}}', "x"),
    "message": ("x",),
    "header": (
        "<38>Nov 20 10:00:00 web1 app[7]: message repeated 5 times: [ x]",
        r'<38>1 2026-11-20T10:00:00Z web1 app 7 m [id@1 a="x\"y" b="z"][b.c d.e="1"] {"severity":"x","pid":"y"}',
    ),
    "cisco": ("%ASA-4-106023", "%SYS-5-CONFIG_I"),
    "json": ('{"a":{"b":["c",1.5,true,"\\u0041\\/"]},"x.y":"z"}', '["a",{"b":"c"}]', "7"),
    "journal": ('{"MESSAGE":"Failed password for bob","SYSLOG_IDENTIFIER":"sshd","_HOSTNAME":"h","_PID":"7"}',),
    "access": (
        'www.example:80 192.0.2.1 - bob [10/Oct/2025:13:55:36 +0000] "GET /a?b=c HTTP/1.1" 200 9 "http://r/" "agent"',
    ),
    "pairs": ("a=b c=\"d e\" f='g h' a=i",),
    "peers": (
        "login failed for user bob from 192.0.2.1:5",
        "auth failed: rhost=192.0.2.1 user='x'",
        "x H=(h) [192.0.2.1]:5 rejected",
    ),
    "auditd": (
        'type=EXECVE msg=audit(1795168800.250:77): argc=2 a0="ls" a1[0]=6C73 a1[1]=2F746D70',
        "node=h type=1300 msg=audit(1795168800.250:77): arch=c000003e syscall=59 exe=2F62696E2F6C73 key=(null)",
        "node=h type=SYSCALL msg=audit(1795168800.250:77): syscall=59 key=(null)\x1dSYSCALL=execve AUID=x",
        "type=USER_LOGIN msg=audit(1.2:3): pid=1 msg='op=login acct=626F62 exe=\"/x\" hostname=h addr=192.0.2.1 res=x'",
        "type=PROCTITLE msg=audit(1.2:3): proctitle=6C73002D6C",
    ),
    "cef": (
        r"CEF:0|Ve\|ndor|P\\x|1.0|100|a = b|7|src=10.0.0.1 spt=1232 suser=bob msg=two\nlines a\=b cs1Label=L cs1=v",
        "Nov h1 CEF:0|a|b|c|d|e|f|act=x request=http://x/ requestMethod=GET",
    ),
    "leef": (
        "LEEF:2.0|V|P|1|E|^|src=192.0.2.1^usrName=joe.black^proto=tcp",
        "LEEF:1.0|V|P|1|E|src=1\tdst=2\tsrcPort=3",
    ),
    "eventxml": (
        '<Event><System><Provider Name="Linux-Sysmon" Guid="{x}"/><EventID>1</EventID><Execution ProcessID="5"/>'
        "<Channel>Linux-Sysmon/Operational</Channel><Computer>web1</Computer></System><EventData>"
        '<Data Name="Image">/usr/bin/bash</Data><Data Name="CommandLine">bash -c &quot;a &lt; b&#10;d&quot;</Data>'
        '<Data Name="User"><![CDATA[a&amp;b]]></Data><Data>x</Data><Data Name="Empty"/></EventData></Event>',
        "<Event><System><EventID>4688</EventID></System><Data Name='NewProcessName'>x</Data></Event>",
    ),
    "snare": tuple(LINES[what] for what in ("4625", "4688", "4104", "Sysmon", "4732")),
    "eventreporter": (LINES["EventReporter"].partition("EvntSLog: ")[2],),
    "fortinet": ('date=2026-11-20 time=10:00:00 devname="fw" type="traffic" srcip=1.2.3.4 dstip=5.6.7.8 srcport=5',),
    "apache_error": (
        "[Fri Nov 20 10:00:00.250000 2026] [core:error] [pid 7:tid 8] [client 192.0.2.1:555] AH00128: "
        "user bob not found: /x, referer: http://r/",
    ),
    "nginx_error": (
        '2026/11/20 10:00:00 [error] 7#8: *9 user "bob" was not found, client: 192.0.2.1, server: s, '
        'request: "GET /a.php?b=c HTTP/1.1", upstream: "u", host: "h", referrer: "r"',
    ),
    "windows": (
        '{"Event":{"System":{"EventID":{"#text":4688},"Provider":{"#attributes":{"Name":"P"}},"Channel":"Security",'
        '"TimeCreated":{"#attributes":{"SystemTime":"t"}}},"EventData":{"NewProcessName":"C:\\\\x","SubjectUserName":"u"}}}',
        '{"winlog":{"channel":"c","event_id":1,"provider_name":"p","computer_name":"h","event_data":{"Image":"x"}}}',
        '{"winlog.event_id":1,"winlog.event_data.Image":"x","winlog.channel":"c"}',
        '{"EventID":1,"SourceName":"p","Hostname":"h","EventTime":"t","Message":"m"}',
        '{"event":{"code":"1","provider":"Microsoft-Windows-Sysmon"},"process":{"executable":"x"}}',
        '{"event":{"code":"1","module":"sysmon"}}',
        '{"System":{"EventID":1},"EventData":{"Data":[{"@Name":"Image","#text":"x"},"y"]}}',
    ),
    "zeek": (
        '{"_path":"http","ts":1,"uid":"C","id.orig_h":"1.2.3.4","id.orig_p":5,"method":"GET","host":"h","uri":"/a?b",'
        '"user_agent":"u","referrer":"r","status_code":200,"username":"n"}',
        '{"_path":"dns","ts":1,"query":"q","qtype_name":"A","answers":["a"],"id.resp_h":"x","id.resp_p":53}',
    ),
    "nginx_json": (
        '{"remote_addr":"1.2.3.4","remote_user":"u","status":"200","request":"GET /a?b HTTP/1.1","http_host":"h"}',
        '{"remote_addr":"1.2.3.4","status":200,"request_uri":"/a?b","http_user_agent":"x","bytes_sent":5}',
    ),
    "caddy": (
        '{"status":200,"size":5,"user_id":"u","request":{"remote_ip":"1.2.3.4","method":"GET","uri":"/a?b","host":"h",'
        '"proto":"p","headers":{"User-Agent":["x"],"Cookie":["c"]}}}',
    ),
    "traefik": ('{"DownstreamStatus":200,"RequestMethod":"GET","RequestPath":"/a?b","ClientHost":"1.2.3.4"}',),
    "kubernetes_audit": ('{"auditID":"x","verb":"get","apiVersion":"audit.k8s.io/v1"}',),
    "opencanary": ('{"logtype":1,"node_id":"x","logdata":{}}',),
    "okta": ('{"eventType":"x","displayMessage":"x","actor":{}}',),
    "suricata": ('{"event_type":"alert","flow_id":1,"timestamp":"t","dest_ip":"1.2.3.4","dest_port":5,"proto":"TCP"}',),
    "samba_audit": (
        '{"type":"Authentication","Authentication":{"remoteAddress":"ipv4:192.0.2.1:4","clientAccount":"bob"}}',
        '{"type":"Authorization","Authorization":{"remoteAddress":"ipv6:2001:db8::9:4","account":"bob"}}',
    ),
    "postgresql": (
        '{"error_severity":"LOG","backend_type":"x","remote_host":"192.0.2.1","remote_port":4,"dbname":"d"}',
    ),
    "client": (
        '{"remote_ip":"[2001:db8::9]:443","username":"bob"}',
        '{"c":"ACCESS","ctx":"conn7","attr":{"remote":"192.0.2.1:4","principalName":"eve"}}',
    ),
    "program": (
        "x rhost=192.0.2.1 user=bob",
        "SRC=192.0.2.1 DST=192.0.2.2 PROTO=TCP",
        '1.2.3.4 - - [10/Oct/2025:13:55:36 +0000] "GET / HTTP/1.1" 200 9',
    ),
}
"""By row lines that have what it gives; of programs those that no pattern reads."""


def _shape(name: str) -> Callable[[str], Mapping[str, Any]]:
    def read(text: str) -> Mapping[str, Any]:
        try:
            event = from_json(text.encode("utf-8", "surrogatepass"))
        except ValueError:
            return {}
        return SHAPES[name].read(event) if isinstance(event, dict) and SHAPES[name].fits(event) else {}

    return read


def _header(text: str) -> Mapping[str, Any]:
    if (header := syslog.parse(raw := text.encode())) is None:
        return {}
    header = syslog.unfold(header, raw)
    found = {name: header.field(part) for part, own in syslog.OWN_NAMES.items() for name in (part, own)}
    found["repeated"] = header.repeated
    given = {name: value for name, value in found.items() if value is not None}
    data = header.structured_data.items()
    return {**given, **{f"{element}.{name}": value for element, more in data for name, value in more.items()}}


def _journal(text: str) -> Mapping[str, Any]:
    found = record(text.encode(), "json").fields()
    return {name: found[name] for name in fields.JOURNAL.values() if "MESSAGE" in found and name in found}


def _program(name: str) -> Callable[[str], Mapping[str, Any]]:
    def read(text: str) -> Mapping[str, Any]:
        found, unread = PROGRAMS[name].read(text)
        return {**(peers.read(text, "user" in found) if unread else {}), **found}

    return read


def _json(text: str) -> Mapping[str, Any]:
    try:
        value = from_json(text.encode("utf-8", "surrogatepass"))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {"value": value}


def _of(names: set[str], codec: str, origin: str = "") -> Callable[[str], Mapping[str, Any]]:
    def read(text: str) -> Mapping[str, Any]:
        found = record(text.encode(), codec, origin=origin).fields()
        return {name: found[name] for name in names & found.keys()}

    return read


KAFKA = ("kafka.topic", "kafka.partition", "kafka.key", "kafka.headers.n")
LEVELS = {f"topic_level_{n}" for n in range(99)}
READ: Mapping[str, Callable[[str], Mapping[str, Any]]] = {
    "transport": _of({"peer"}, "text", "192.0.2.1"),
    "kafka": _of({*KAFKA}, "text", "kafka:audit/3?k=web-1&h.n=a%20b"),
    "mqtt": _of({"topic", "topic_levels", *LEVELS}, "mqtt", "a/b/c"),
    "message": _of({"message"}, "text"),
    "header": _header,
    "cisco": cisco.tag,
    "json": _json,
    "journal": _journal,
    "access": access.read,
    "pairs": key_values,
    "peers": peers.read,
    **{name: form.read for name, form in FORMATS.items()},
    **{name: _shape(name) for name in SHAPES},
    **{f"program {name}": _program(name) for name in PROGRAMS},
}


def test_every_row_is_tried_and_documented() -> None:
    """A row has a reader and samples here, says how its events are recognized, and stands in ``docs/fields.md``."""
    assert set(READ) == set(TABLE)
    assert set(SAMPLES) == {name.partition(" ")[0] for name in TABLE}
    assert all(row.recognized for row in TABLE.values())
    assert all(isinstance(field.how, Provenance) for row in TABLE.values() for field in row.fields)
    text = fields_page.PAGE.read_text("utf-8")
    assert text == fields_page.page(text), "run python -m tests.decode.fields_page"


def _stands(raw: bytes, text: str) -> bool:
    """Whether the search finds all pieces of ``text`` in ``raw``, or ``raw`` is one that it need not find them in."""
    if any(re.search(guard, b"\n" + raw, re.I) for guard in NUMBER_GUARDS):
        return True
    return all(holds(raw, frozenset({piece})) for piece in pieces(text))


def _explains(field: Field, name: str, value: Any, raw: bytes) -> bool:
    names = [own.rpartition(".")[2] for own in field.of]
    if names and not any(_stands(raw, name if own == field.name else own) for own in names):
        return False
    if field.guard and re.search(field.guard, raw, re.I):
        return True
    text = raw.decode("utf-8", "replace")
    for one in scalars([value]):
        if field.how is Provenance.SYNTHETIC:
            if field.values is not None and one not in field.values:
                return False
        elif one not in text and (field.how is Provenance.VERBATIM or not _stands(raw, one)):
            return False
    return True


def unexplained(row: Gives, fields: Mapping[str, Any], raw: bytes) -> list[tuple[str, Any]]:
    """Those of ``fields`` that ``row`` does not declare, or not so."""
    bad = []
    for name, value in fields.items():
        numbered = re.sub(r"\d{1,4}\Z", "<n>", name)
        own = [field for field in row.fields if field.name in (name, numbered)]
        own += [field for field in row.fields if field.name.endswith("<name>") and name.startswith(field.name[:-6])]
        own += [Field(name, (name,), row.any)] if row.any is not None else []
        if not any(_explains(field, name, value, raw) for field in own):
            bad.append((name, value))
    return bad


@cache
def lines(name: str) -> tuple[str, ...]:
    """Real lines that the row reads."""
    found = (text for raw, _, _ in events()[::7] if READ[name](text := raw.decode("utf-8", "replace")))
    return (*SAMPLES[name.partition(" ")[0]], *itertools.islice(found, 40))


def patterns(name: str) -> list[re.Pattern[str]]:
    if name in FORMATS:
        return [re.compile(r"\A" + FORMATS[name].starts.decode())]
    return list(PROGRAMS[name.partition(" ")[2]].compiled) if name.startswith("program ") else []


TOKENS = (
    *("a0=6C73", "user=x", "src_ip=1.2.3.4", "\\", "\\u0041", "&#65;", "&quot;", "|", "^", "\t", " ", "'", '"', "="),
    *(
        "=00FF00FF",
        "key=",
        "rhost=",
        " from 192.0.2.9",
        "\u017f",
        "\u212a",
        "é",
        ",",
        "{",
        "}",
        "[",
        "]",
        "1e5",
        "-",
        "\n",
    ),
    *("EventID", "Name=", "type=1300 ", '"winlog":', '"uri":"/x?y"', "<Data Name='a'>b</Data>", "audit(1.2:3)"),
)


@cache
def sources(name: str) -> st.SearchStrategy[str]:
    """Real lines, texts that the row's patterns match, and both together."""
    choices = [st.sampled_from(lines(name))]
    if made := patterns(name):
        choices.append(st.one_of([st.from_regex(one) for one in made]).map(lambda x: x[:2000]))
        choices.append(st.tuples(choices[-1], choices[0]).map("".join))
    return st.one_of(choices)


NOISE = st.one_of(st.sampled_from(TOKENS), st.text(max_size=6))


@st.composite
def mutated(draw: st.DrawFn, name: str) -> str:
    text = draw(sources(name))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(text)))
        noise = draw(NOISE)
        text = text[:at] + noise + text[at + draw(st.integers(0, 9)) :]
    return text.encode("utf-8", "replace").decode("utf-8", "replace")


ROWS = list({row: name for name, row in reversed(TABLE.items())}.values())


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_complete(name: str) -> None:
    """No field that a row does not declare, under a name that does not stand in the event, or with a value that stands
    there otherwise than declared."""
    for text in lines(name):
        assert not unexplained(TABLE[name], READ[name](text), text.encode()), text

    @settings(max_examples=10)
    @given(mutated(name))
    def draw(text: str) -> None:
        assert not unexplained(TABLE[name], READ[name](text), text.encode())

    draw()


@pytest.mark.parametrize("name", [name for name in ROWS if TABLE[name].fields and not name.startswith("program ")])
def test_a_row_is_read(name: str) -> None:
    """The samples have fields that the row declares: what is compared is no empty set."""
    found = {field for text in SAMPLES[name] for field in READ[name](text)}
    assert {field.name for field in TABLE[name].fields} & (found | {re.sub(r"\d{1,4}\Z", "<n>", one) for one in found})


@cache
def clause_of(name: str) -> Literals | None:
    return next(iter(clauses_of(Predicate(name, Op.EXISTS))), None)


def test_a_field_stands_under_its_name() -> None:
    """Every decoded field of every event: where its name is a literal, the event holds it, or another of its names."""
    told = set()
    for raw, codec, topic in events():
        for name in paths(record(raw, codec, origin=topic).fields()):
            for asked in (name, *ALIASES.get(name, ())):
                if (clause := clause_of(asked)) is not None:
                    told.add(name)
                    assert holds(raw, clause), (asked, raw)
    assert len(told) > 100


def test_an_event_tells_its_log_source() -> None:
    """Every event of every source: where the source has literals and the input does not say it, the event holds one."""
    told = set()
    for raw, codec, topic in events():
        for read in {codec, "auto", "syslog"}:
            for part, values in enumerate(record(raw, read, origin=topic).source):
                for value in values:
                    wanted = LogSource(*(value if i == part else "" for i in range(3)))
                    found = witness(wanted)
                    if found is not None and found.excuses(wanted, CODECS[read], LogSource()):
                        told.add(value)
                        assert holds(raw, found.literals), (wanted, read, raw)
    assert len(told) > 20


@pytest.mark.parametrize("name", ["OwnName", "customer_id", "winlog.event_data.TaskContentNew", "peer.x"])
def test_names_that_no_decoder_gives(name: str) -> None:
    """They stand in the event as they are."""
    assert fields.stands_as(name) == {name}


@pytest.mark.parametrize("name", ["src_ip", "cs-uri-stem", "repeated", "topic", "topic_level_3", "value", ""])
def test_names_that_decoders_give(name: str) -> None:
    """Nothing is said about them."""
    assert fields.stands_as(name) is None


def test_names_that_stand_for_others() -> None:
    """A field that is given for another of the event stands there as one or the other."""
    assert fields.stands_as("deviceAction") == {"deviceAction", "act"}
    assert fields.stands_as("a3") == {"a3"}
    names = {"ParentImage", "ParentProcessName", "Creator Process Name", "process.parent.executable"}
    assert fields.stands_as("ParentImage") == names


def test_the_digest_tells_declarations_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that gives a field of its own changes what is declared of that field, and of no other."""
    one, other = fields.digest(["OwnName", "user"]), fields.digest(["user"])
    for row in (Field("OwnName"), Field("OwnName", ("x",)), Field("OwnName", ("OwnName",), guard=b"x")):
        with monkeypatch.context() as patch:
            patch.setitem(fields._BY_NAME, "OwnName", [row])
            fields.stands_as.cache_clear()
            assert fields.digest(["OwnName", "user"]) != one
            assert fields.digest(["user"]) == other
    fields.stands_as.cache_clear()
    assert fields.digest(["OwnName", "user"]) == one
