"""What the kernel's tests draw: JSON structures of every make that decoders know, and events with values drawn anew.

Of a *structure* names and nesting are drawn once, with the kind of each value; each event has values of these kinds of
its own, from small pools that hold what decoders decide by. Order and how names are written are drawn once, or for each
event, some of whose members then occur twice. By ``random``: an example is
its seed, and costs a hundredth of what hypothesis needs for so many values.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tests.engine import drawn
from tests.reference import TABLES
from vedette.decode.aliases import ALIASES
from vedette.decode.formats.services import CLIENTS
from vedette.plan.ir import ANY, KEYWORDS, STAR, Expr, Op, Predicate, fold
from vedette.plan.ir import And as AllOf
from vedette.plan.ir import Leaf as Test
from vedette.plan.ir import Not as Never
from vedette.plan.ir import Or as OneOf
from vedette.plan.timepart import UNITS

# --- values: each pool is of what one name may hold, as texts

POOLS: dict[str, tuple[str, ...]] = {
    "$id": ("1", "3", "4688", "4104", "13", "22", "", "400", "046"),
    "$channel": (
        *("Security", "security", "Microsoft-Windows-Sysmon/Operational", "System", "", "ForwardedEvents"),
        *("Linux-Sysmon/Operational", "WinEventLog:Security", "Microsoft-Windows-PowerShell/Operational", "other"),
    ),
    "$provider": ("Microsoft-Windows-Sysmon", "Linux-Sysmon", "PowerShell", "security", "", "x", "Sysmon"),
    "$ip": (
        *("::ffff:1.2.3.4", "[::1]", "10.1.2.3", "10.1.2.3:4711", "203.0.113.9", "[::ffff:10.1.2.3]:22", "fe80::1"),
        *("", "-", "web1", "::FFFF:10.1.2.3", " 10.1.2.3 ", "fe80::1%eth0", "010.1.2.3", "::", "1:2:3:4:5:6:7::"),
    ),
    "$samba": ("ipv4:198.51.100.7:50246", "ipv6:2001:db8::7:50246", "unix:", "", "ipv4:1.2.3.4:", "ipv6:::1:22"),
    "$path": ("/usr/bin/x", "C:\\Windows\\cmd.exe", "", "/", "C:\\windows\\CMD.EXE", "cmd.exe", "x"),
    "$uri": ("/a?b=c", "/a", "", "/?password", "?", "-", "/x?"),
    "$request": ("GET /a?b=c HTTP/1.1", "GET /a HTTP/1.0", "POST /x?password HTTP/2.0", "", "-", "nonsense", "GET /"),
    "$log": ("dns", "http", "conn", "other", "", "files"),
    "$api": ("audit.k8s.io/v1", "audit.k8s.io/", "v1", ""),
    "$name": ("CommandLine", "Image", "EventID", "Channel", "a", "", "NewProcessName", "TargetFilename"),
    "$os": ("windows", "linux", "", "Windows"),
    "$program": ("sshd", "sudo", "/usr/sbin/CRON", "[kernel]", "sshd(pam_unix)", "", "nobody", "%SYS-5-X"),
    "$time": ("2026-11-20T10:00:00Z", "1763632800", "20/Nov/2025:10:00:00 +0100", "Nov 20 10:00:00", "2025-11-28"),
    "$text": (),  # the example's own
}
MANY = ("1e400", "-1e999", "1" + "0" * 400, "123456789012345678901234567890")
"""Numbers beyond what a float holds, or an integer."""

_SYSMON = {"CommandLine": "$text", "Image": "$path", "User": "$text", "ParentImage": "$path", "Hashes": "$text"}
_AUDITED = {"NewProcessName": "$path", "ParentProcessName": "$path", "SubjectUserName": "$text", "CommandLine": "$text"}
_ZEEK = {"ts": "$time", "uid": "$text", "id.orig_h": "$ip", "id.orig_p": "$id", "id.resp_h": "$ip", "id.resp_p": "$id"}

TEMPLATES: tuple[dict[str, Any], ...] = (
    {"Event": {"System": {"EventID": "$id", "Channel": "$channel", "Provider": {"#attributes": {"Name": "$provider"}},
                          "TimeCreated": {"@SystemTime": "$time"}, "Computer": "$text"}, "EventData": _SYSMON}},
    {"Event": {"System": {"EventID": {"#text": "$id", "#attributes": {"Qualifiers": "$id"}}, "Channel": "$channel",
                          "Provider": {"@Name": "$provider"}, "Level": "$id"}, "EventData": _AUDITED}},
    {"Event": {"System": {"EventID": "$id"}, "EventData": {"Data": [{"@Name": "$name", "#text": "$text"},
                                                                    {"@Name": "$name", "#text": "$path"}, "$text"]}}},
    {"Event": {"System": {"EventID": "$id", "Channel": "$channel"}, "UserData": {"Data": {"Name": "$name",
     "Value": "$text"},
                                                                                  "#x": "$text",
                                                                                  "Image": {"#text": "$path"}}}},
    {"System": {"EventID": "$id", "Channel": "$channel"}, "EventData": {**_AUDITED, "Data": ["$text", "$text"]}},
    {"winlog": {"event_id": "$id", "channel": "$channel", "provider_name": "$provider", "computer_name": "$text",
                "event_data": _SYSMON}, "@timestamp": "$time"},
    {"event_id": "$id", "log_name": "$channel", "source_name": "$provider", "event_data": _AUDITED},
    {"winlog.event_id": "$id", "winlog.channel": "$channel", "winlog.event_data.Image": "$path",
     "winlog.event_data.CommandLine": "$text", "winlog.provider_name": "$provider", "winlog.user_data.a": "$text"},
    {"EventID": "$id", "Channel": "$channel", "SourceName": "$provider", "Hostname": "$text",
     "EventTime": "$time", **_SYSMON},
    {"EventID": "$id", "Channel": "$channel", **_AUDITED},
    {"EventID": "$id", "Provider_Name": "$provider", **_AUDITED, "TargetFilename": "$path"},
    {"event": {"code": "$id", "provider": "$provider", "module": "$provider"}, "host": {"os": {"type": "$os"}},
     "process": {"command_line": "$text", "executable": "$path", "parent": {"executable": "$path"}}},
    {"event.code": "$id", "event.provider": "$provider", "host.os.type": "$os", "process.command_line": "$text",
     "user.name": "$text", "source.ip": "$ip"},
    {"Image": "$path", "CommandLine": "$text", "ScriptBlockText": "$text"},
    {"Image": "$path", "DestinationIp": "$ip", "QueryName": "$text", "Provider_Name": "$provider"},
    {**_ZEEK, "_path": "$log", "query": "$text", "uri": "$uri"},
    {**_ZEEK, "trans_depth": "$id", "method": "$text", "host": "$text", "uri": "$uri", "user_agent": "$text"},
    {**_ZEEK, "trans_id": "$id", "query": "$text", "qtype_name": "$text", "answers": ["$text", "$ip"]},
    {**_ZEEK, "conn_state": "$text", "proto": "$text"},
    {"ts": "$time", "fuid": "$text", "mime_type": "$text"},
    {"ts": "$time", "note": "$text", "msg": "$text", "peer": "$text", "certificate.serial": "$text"},
    {"timestamp": "$time", "flow_id": "$id", "event_type": "$text", "src_ip": "$ip", "dest_ip": "$ip",
     "dest_port": "$id",
     "proto": "$text", "alert": {"signature": "$text", "severity": "$id"}},
    {"kind": "Event", "apiVersion": "$api", "auditID": "$text", "verb": "$text", "user": {"username": "$text"},
     "sourceIPs": ["$ip"], "objectRef": {"resource": "$text", "name": "$text"}},
    {"eventType": "$text", "displayMessage": "$text", "actor": {"alternateId": "$text"}, "client": {"ipAddress": "$ip"},
     "target": [{"type": "$text", "id": "$id"}, {"type": "$text"}]},
    {"timestamp": "$time", "type": "$text", "Authentication": {"remoteAddress": "$samba", "clientAccount": "$text",
                                                               "account": "$text", "status": "$text"}},
    {"timestamp": "$time", "error_severity": "$text", "backend_type": "$text", "user": "$text", "dbname": "$text",
     "remote_host": "$ip", "remote_port": "$id", "message": "$text"},
    {"logtype": "$id", "node_id": "$text", "logdata": {"USERNAME": "$text", "PASSWORD": "$text"}, "src_host": "$ip"},
    *({client: "$ip", "username": "$text", "msg": "$text"} for client in CLIENTS[::3]),
    {"remoteIp": "$ip", "client_ip": "$ip", "login": "$text", "src_ip": "$ip", "user": "$text"},
    {"t": {"$date": "$time"}, "c": "$text", "ctx": "$text", "attr": {"remote": "$ip", "client": "$ip",
     "userName": "$text"}},
    {"remote_addr": "$ip", "status": "$id", "request": "$request", "http_referer": "$uri", "remote_user": "$text"},
    {"remote_addr": "$ip", "status": "$id", "request_uri": "$uri", "http_user_agent": "$text",
     "body_bytes_sent": "$id"},
    {"request": {"remote_ip": "$ip", "method": "$text", "uri": "$uri", "host": "$text",
     "headers": {"User-Agent": ["$text"]}},
     "status": "$id", "size": "$id", "user_id": "$text"},
    {"DownstreamStatus": "$id", "RequestMethod": "$text", "RequestPath": "$uri", "ClientHost": "$ip",
     "ClientUsername": "$text"},
    {"MESSAGE": "$text", "SYSLOG_IDENTIFIER": "$program", "_HOSTNAME": "$text", "_PID": "$id"},
    {"SYSLOG_IDENTIFIER": "$program", "message": "$text", "user": "$text"},
    {"a": "$text", "b": "$text", "n": {"x": "$text", "y": {"x": "$id"}}, "user": "$text"},
    {"a": [{"x": "$text"}, {"x": "$text", "OwnName": "$id"}], "n.x": "$text", "message": "$text"},
    {"n": [[{"x": "$text"}], ["$text"], "$id"], "outer": {"inner_task": "$text"}, "value": "$text"},
    {"a": "$text", "x": ["$text", "$text"], "peer": "$ip", "topic": "$text", "topic_level_2": "$text", "host": "$text"},
    {"outer.inner_task": "$text", "outer": {"inner_task": "$id"}, "task/list": "$text", "repeated": "$id",
     "topic_levels": "$text"},
    {"program": "$program", "hostname": "$text", "severity": "$id", "pid": "$id", "time": "$time", "exe": "$path"},
)  # fmt: skip
"""A name with what it holds: an object, an array, or a pool of values."""

GIVEN = (
    *("EventID", "Channel", "Provider_Name", "Computer", "Image", "CommandLine", "User", "ParentImage", "Data"),
    *("src_ip", "src_port", "dst_ip", "dst_port", "user", "cs-uri", "cs-uri-stem", "cs-uri-query", "cs-method"),
    *("cs-username", "c-ip", "sc-status", "cs-user-agent", "cs-referer", "cs-request", "record_type", "answer"),
    *("protocol", "message", "program", "hostname", "pid", "TimeCreated", "LogonId", "value", "NewProcessName"),
    *("peer", "topic", "topic_levels", "topic_level_1", "topic_level_2", "topic_level_3", "peer.x"),
)
"""Names that decoders give."""

ORIGINS = ("", "10.1.2.3", "a/b/c", "web1", "plant")


class Draw:
    """One example's random choices, around the texts of ``fragments``."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        words = [self._text() for _ in range(random.randint(1, 3))]
        self.decoded: list[tuple[str, str]] = []
        """Decoded fields of the example's events: half of all predicates are made of one."""
        self._own: str | None = None
        self.fragments = words + random.sample(drawn.WORDS + drawn.PRINTED, 2)

    def _text(self) -> str:
        random, out = self.random, ""
        for _ in range(random.randint(1, 6)):
            out += random.choice(random.choice((drawn.PLAIN, drawn.PLAIN, drawn.TRAPS, drawn.FOREIGN)))
        return out

    def text(self, pool: str) -> str:
        """A text of a pool; often a fragment, in some case."""
        random, texts = self.random, POOLS.get(pool, (pool,))
        if texts and random.random() < 0.9:
            return random.choice(texts)
        parts = [random.choice(self.fragments) for _ in range(random.choice((0, 1, 1, 1, 2)))]
        if random.random() < 0.3:
            parts.insert(random.randint(0, len(parts)), self._text())
        text = "".join(parts)
        return self._variant(text) if random.random() < 0.5 else text

    def _variant(self, text: str) -> str:
        """``text`` in another case: of each letter any that folds to the same."""
        return "".join(self.random.choice((char, char.upper(), *drawn._VARIANTS.get(fold(char), ""))) for char in text)

    # --- JSON

    def string(self, text: str) -> str:
        """``text`` as a JSON string, in one of the forms there are."""
        random = self.random
        if random.random() < 0.6:
            return json.dumps(text, ensure_ascii=random.random() < 0.5)
        out = []
        for char in text:
            units = "".join(f"\\u{unit:04x}" for unit in drawn._units(char))
            forms = [json.dumps(char)[1:-1], units, units.upper().replace("\\U", "\\u")]
            if char == "/":
                forms.append("\\/")
            if ord(char) >= 0x20 and char not in '"\\':
                forms += [char] * 3
            out.append(random.choice(forms))
        return '"' + "".join(out) + '"'

    def value(self, pool: str, kind: str) -> str:
        """A value of a kind."""
        random = self.random
        match kind:
            case "text":
                text = self.text(pool)
                return self.string(text if text or random.random() < 0.2 else self.fragments[0])
            case "int":
                return random.choice(("1", "3", "4688", "4104", "0", "-15", "4720", "9007199254740993", "400", "13"))
            case "decimal":
                return random.choice(
                    ("0.5", "4688.0", "1.0", "-0.0", "0.0001", "12345.678", "4720.0", "99999999.9999999")
                )
            case "number":
                return random.choice(drawn.NUMBERS + MANY)
            case "list":
                return self.list(pool)
            case "hollow":
                return random.choice(("[]", "[ ]", "[]", "[[]]", "[null]", self.list(pool)))
            case _:
                return kind

    def list(self, pool: str, depth: int = 0) -> str:
        """An array without objects."""
        random, items = self.random, []
        for _ in range(random.randint(1, 3)):
            if depth < 2 and random.random() < 0.2:
                items.append(self.list(pool, depth + 1))
            else:
                items.append(
                    self.value(pool, random.choice(("text", "text", "text", "int", "decimal", "number", *WORDS)))
                )
        return random.choice(("[{}]", "[ {} ]")).format(random.choice((",", ", ", " ,")).join(items))

    def structure(self) -> Structure:
        return Structure(self)

    # --- rules

    def predicate(self, names: list[str]) -> Predicate:
        """Any predicate, mostly of ``names``."""
        random = self.random
        name = random.choice(names) if random.random() < 0.85 else random.choice((*GIVEN, *drawn.FIELDS, KEYWORDS))
        self._own = None
        if self.decoded and random.random() < 0.6:
            name, self._own = random.choice(self.decoded)
        name, cased = random.choice((name, name, name, name, KEYWORDS)), random.random() < 0.25
        match random.choice("eeeppsscccggrrnoitfxxkllll"):
            case "e" if name != KEYWORDS:
                return self._plain(name, Op.EXACT, self._wanted(), cased)
            case "p" if name != KEYWORDS:
                return self._plain(name, Op.PREFIX, self._cut(), cased)
            case "s" if name != KEYWORDS:
                return self._plain(name, Op.SUFFIX, self._cut(), cased)
            case "g":
                parts = [random.choice((self._cut(), self._cut(), STAR, ANY)) for _ in range(random.randint(1, 4))]
                parts = [p for p in parts if p] or [STAR]
                parts = [STAR, *parts, STAR] if name == KEYWORDS else parts
                return Predicate(
                    name, Op.GLOB, tuple(p if cased or p in (STAR, ANY) else fold(p) for p in parts), cased
                )
            case "r":
                return Predicate(name, Op.REGEX, self._regex(), True, random.choice(("", "", "m", "s", "ms")))
            case "k":  # what Hyperscan does not take
                return Predicate(
                    name, Op.REGEX, random.choice(("a(?=b)", "(?<!x)cmd", "(?<=\\.)exe", "(a|b)\\1", "1(?!5)")), True
                )
            case "n" if name != KEYWORDS:
                return Predicate(name, Op.NUMBER, random.choice((*drawn._VALUES, 4688, 1.0, 1e300, 400, 2**53 + 1)))
            case "o" if name != KEYWORDS:
                return Predicate(
                    name, random.choice((Op.LT, Op.LTE, Op.GT, Op.GTE)), random.choice((*drawn._VALUES, 4688))
                )
            case "i":
                return Predicate(name, Op.CIDR, random.choice(drawn._NETWORKS))
            case "t" if name != KEYWORDS:
                unit = random.choice(list(UNITS))
                return Predicate(name, Op.TIME_PART, random.choice((10, 11, 20, 2026, 2025, 0, 28, 47)), False, unit)
            case "f" if name != KEYWORDS:
                op = random.choice((Op.FIELD_EXACT, Op.FIELD_PREFIX, Op.FIELD_SUFFIX, Op.FIELD_CONTAINS))
                return Predicate(name, op, random.choice(names))
            case "x" if name != KEYWORDS:
                return Predicate(name, random.choice((Op.NULL, Op.EXISTS)))
            case "l" if name != KEYWORDS:
                table = random.choice(list(TABLES))
                return Predicate(name, Op.LOOKUP, table, option=random.choice(list(TABLES[table])).rpartition(":")[0])
        return self._plain(name, Op.CONTAINS, self._cut(), cased)

    @staticmethod
    def _plain(name: str, op: Op, text: str, cased: bool) -> Predicate:
        return Predicate(name, op, text if cased else fold(text), cased)

    def _wanted(self) -> str:
        if self._own is not None:
            return self._own
        return (
            self.text(self.random.choice(tuple(POOLS)))
            if self.random.random() < 0.7
            else self.random.choice(drawn.PRINTED)
        )

    def _cut(self) -> str:
        text = self._wanted()
        if self.random.random() < 0.4:
            start = self.random.randint(0, len(text))
            text = text[start : self.random.randint(start, len(text))]
        return text

    def _regex(self) -> str:
        random = self.random
        part = "".join(
            c if c.isalnum() else f"\\x{{{ord(c):x}}}" if ord(c) > 255 else f"\\x{ord(c):02x}" for c in self._cut()
        )
        part = part.replace("\\x{", "\\u{").replace("\\u{", "") if "\\x{" in part else part
        ends = (
            "{}",
            "^{}",
            "{}$",
            "^{}$",
            "{}.",
            ".{}",
            "{}\\b",
            "[^a]{}",
            "(?:{}|cmd)",
            "{}\\d?",
            "\\W{}",
            "{}\\Z",
            "^$|{}",
        )
        return random.choice(ends).format(part if "}" not in part else "cmd")

    def expr(self, count: int, depth: int = 0) -> Expr:
        """An expression over predicates below ``count``."""
        random = self.random
        kind = random.random() if depth < 3 else 0.0
        if kind < 0.45:
            return Test(random.randrange(count))
        if kind < 0.6:
            return Never(self.expr(count, depth + 1))
        parts = tuple(self.expr(count, depth + 1) for _ in range(random.randint(2, 3)))
        return AllOf(parts) if kind < 0.85 else OneOf(parts)


WORDS = ("true", "false", "null")


class Structure:
    """Names and kinds of values."""

    def __init__(self, draw: Draw) -> None:
        self._draw, random = draw, draw.random
        self._odd = random.random() < 0.4
        """Whether names and kinds depart from the template's."""
        template = dict(random.choice(TEMPLATES))
        if random.random() < 0.2:
            template |= random.choice(TEMPLATES)
        if random.random() < 0.3:
            template[random.choice((*drawn.OWN, *drawn.FIELDS, *GIVEN))] = random.choice(
                ("$text", "$id", {"x": "$text"})
            )
        self.names: list[str] = []
        """Paths that rules may ask for, with other names."""
        self._form = self._shaped(template, "")
        self.names += [other for name in self.names for other in ALIASES.get(name, ())]
        self._space = random.choice(("", "", " "))
        self._kinds = random.random() < 0.1
        """Whether a value here and there is of another kind in each event."""
        self._turned = random.random() < 0.4
        """Whether each event has an order and a spelling of its own."""

    def _shaped(self, template: Any, path: str) -> Any:
        """``template`` with kinds, and names as they are written."""
        random = self._draw.random
        if isinstance(template, dict):
            members = [
                (name, self._shaped(inner, f"{path}.{name}" if path else name))
                for name, inner in template.items()
                if random.random() > 0.1
            ]
            if self._odd and random.random() < 0.2:
                random.shuffle(members)
            if self._odd and members and random.random() < 0.1:
                members.append(random.choice(members))
            return {"members": [(self._key(name), inner) for name, inner in members]}
        if path:
            self.names.append(path)
            self.names.append(path.rpartition(".")[2])
        if isinstance(template, list):
            return [self._shaped(item, path) for item in template]
        if self._odd and random.random() < 0.15:
            return (template, random.choice(("int", "decimal", "number", "number", "list", "list", "hollow", *WORDS)))
        if self._odd and random.random() < 0.05:
            return random.choice(([{"members": []}], {"members": []}, [{"members": [('"x"', (template, "text"))]}]))
        return template, ("int" if random.random() < 0.4 else "text") if template == "$id" else "text"

    def _key(self, name: str) -> str:
        if self._odd and self._draw.random.random() < 0.1:
            return self._draw.string(name)
        return json.dumps(name)

    def event(self) -> str:
        """Another event."""
        return self._written(self._form)

    def _turn(self, members: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """``members`` in another order, with names in another spelling, and now and then one of them twice."""
        draw, random = self._draw, self._draw.random
        members = random.sample(members, len(members))
        if members and random.random() < 0.15:
            members.insert(0, random.choice(members))
        return [
            (draw.string(json.loads(name)), form) if random.random() < 0.1 else (name, form) for name, form in members
        ]

    def _written(self, form: Any) -> str:
        if isinstance(form, dict):
            colon, members = ":" + self._space, form["members"]
            if self._turned:
                members = self._turn(members)
            return "{" + ",".join(f"{name}{colon}{self._written(inner)}" for name, inner in members) + "}"
        if isinstance(form, list):
            return "[" + ",".join(map(self._written, form)) + "]"
        pool, kind = form
        if self._kinds and self._draw.random.random() < 0.1:
            kind = self._draw.random.choice(("text", "int", "hollow", "null"))
        return self._draw.value(pool, kind)


# --- lines

_PRIORITIES = ("<38>", "<13>", "<38>", "<0>", "<191>", "<192>", "<038>", "<1913>", "")
_STAMPS = (
    *("Nov 20 10:00:00", "Nov 20 10:00:00", "Nov  9 00:00:00", "Feb 28 23:59:59", "Nov 29 10:00:00", "Nov 20 24:00:00"),
    *("nov 20 10:00:00", "Nov 20 10:00:00.1"),
)
_HOSTS = ("web1", "web1", "-", "10.0.0.1", "web1:", "a[b", "<x>", "h\u00e9", "")
_TAGS = (
    *("app[12]", "sshd[7]", "sudo", "CRON[1]", "kernel", "program", "h\u00e9", "x" * 128, "x" * 129, "a.b/c(d)"),
    *("%ASA-6-302013", "%SYS-5-X", "12", "app[]", "app[1 2]", "a=b", "CEF", "LEEF:1", "", "-"),
)
_ENDS = (": ", ": ", ": ", ":", ":  ", " ", ":/", "; ")
_TIMES = ("2026-11-20T10:00:00Z", "2026-", "-", "2026", "Nov", "2026-11-20T10:00:00.123456+01:00")
_NAMES = ("app", "-", "sshd", "12", "CEF:0", "program", "h\u00e9")
_DATA = (
    *("- ", "-", "", "[a]", '[a b="c"] ', '[s@1 p="x" q="\\"]"][t] ', '[a b="c"]x', '[a b="c" ', "[a b=c] ", "[] "),
    *('[a b= "c" ] ', "-x ", "- \ufeff", '[program hostname="x"] '),
)


def header(draw: Draw) -> str:
    """The header of a syslog line, also one that nearly is none."""
    choice = draw.random.choice
    if draw.random.random() < 0.65:
        return f"{choice(_PRIORITIES)}{choice(_STAMPS)} {choice(_HOSTS)} {choice(_TAGS)}{choice(_ENDS)}"
    version, names = choice(("1", "1", "2", "01", "1000")), " ".join(choice(_NAMES) for _ in range(3))
    return f"{choice(_PRIORITIES)}{version} {choice(_TIMES)} {choice(_HOSTS)} {names} {choice(_DATA)}"


def message(draw: Draw, document: str) -> str:
    """What follows a header: a text, ``document``, or what decoders look for."""
    random = draw.random
    text = " ".join(draw.text("$text") for _ in range(random.randint(0, 3)))
    match random.randrange(12):
        case 0 | 1 | 2:
            body = document
        case 3:
            body = random.choice(("@cee: ", "@cee:", " ", "@", "\t", "@cee:  ")) + document
        case 4:
            body = f"message repeated 5 times: [ {random.choice((text, document))}]"
        case 5:
            body = random.choice(("CEF:0|a|b|1|2|", "x CEF:0|a|b|1|2|", "LEEF:1.0|a|b|1|2|", "date=1 devname=")) + text
        case 6:
            audit = f"type=SYSCALL msg=audit(1763632800.1:{random.getrandbits(40)}): "  # one number, one event
            body = random.choice((audit, "audit(", "<Event", "[error] ")) + text
        case 7:
            body = f"user={text} a=1 program={text} hostname=x &# \\u0041"
        case 8:
            body = random.choice(("Failed password for root from 10.1.2.3 port 2 ", "  x : TTY=p ; USER=root ")) + text
        case _:
            body = text
    return body + random.choice(("", "", "", "\r", "\0", "\0\r", " "))


def spoiled(draw: Draw, text: str) -> bytes:
    """``text`` as bytes, now and then with what readers take differently in it."""
    random, raw = draw.random, text.encode("utf-8", "surrogatepass")
    if random.random() > 0.12:
        return raw
    at = random.randint(0, len(raw))
    match random.randrange(9):
        case 0:
            return raw[:at] + random.choice((b"\xff", b"\xc5", b"\xed\xa0\x80", b"\xf0\x9f", b"\xc0\xaf")) + raw[at:]
        case 1:
            return raw + random.choice((b" ", b"\t \r", b"\0", b"\0 \0", b"x", b"{}", b"\r\n", b"]"))
        case 2:
            return random.choice((b"\xef\xbb\xbf", b" ", b"\t", b"\0")) + raw
        case 3:
            return raw.replace(
                b'"', random.choice((rb'"\ud800', rb'"\udc00', rb'"\ud83d\ude00')), random.choice((1, 3, -1))
            )
        case 4:
            return raw[:at] + random.choice((b"\0", b"\x1b", b"\t", b"\n", b"\x7f")) + raw[at:]
        case 5:
            return (
                raw[:-1] + b',"deep":' + b"[" * random.choice((62, 64, 70)) + b"]" * random.choice((62, 64, 70)) + b"}"
            )
        case 6:
            return raw[:at]
        case 7:
            return raw[:at] + random.choice((b"\\", b'"', b"{", b",", b"NaN", b"01", b"\\u12")) + raw[at:]
    return raw.replace(b":", b":  ", 2)
