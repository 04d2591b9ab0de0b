"""Remote configuration: an overlay over the local file, and the agent's own way back.

An overlay is TOML of the same form as the file. It changes what OPEN lists, and nothing else: its tables are merged
into the file's key by key, ``[[input]]``, ``[[sink]]`` and ``[[ruleset]]`` tables by their name, other lists as a
whole. What is not in OPEN, or is locked by the host (``[fleet] locked``), stays as it is, and what the overlay says of
it is ``ignored``, also where this release knows no such setting. What is ignored and not locked is ``lacking``, too:
the centre publishes no such overlay, but an earlier release may have taken it, and what it added then is closed.
Overlay and result go through the reader of the file: a value that does not validate is never in force, nor an entry of
a list with a key that is none, which would say more without it.

Which overlay is in force is one file, replaced as a whole (``Applied``)::

    FOLDER/overlay.json          {"active": SHA256 or "", "previous": SHA256 or "", "confirmed": bool, "starts": int,
                                  "undone": {SHA256: reason}, "governed": [rule set]}
    FOLDER/overlays/SHA256.toml  its bytes, and those of the previous one; "" is: no overlay

An overlay comes unconfirmed. The agent confirms it once it was healthy and connected for a while; when it was not for
as long (``Watch``), or died ``MAX_STARTS`` times in a row before it was, the previous one is in force again, at the
next start at the latest, and the undone one is not taken again. Killed between two steps, the agent goes on with
either.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Collection, Container, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
from msgspec import Struct, structs

from vedette.config.enrolled import enrolled
from vedette.config.read import ConfigError, UnknownKey, parse, parse_document, part_mistakes, read_text
from vedette.config.settings import DEFAULT_SET, Config, Overlay
from vedette.inputs.settings import INPUT_TYPES
from vedette.sinks.settings import SINK_TYPES
from vedette.system import documents
from vedette.system.durable import write_whole
from vedette.system.foreign import read_toml

OPEN = frozenset({
    "agent.site", "agent.max_memory", "agent.stop_within",
    "raw_log.max_bytes", "raw_log.max_age", "raw_log.fsync",
    "state.max_bytes", "state.max_lateness", "state.settle",
    "functions.max_seconds", "functions.max_memory",
    "suppress", "enrich",
    "bundles.channel",
    "ruleset.name", "ruleset.channel", "ruleset.isolation", "ruleset.max_memory", "ruleset.max_cpu",
    "ruleset.max_seconds", "ruleset.max_backlog",
    "lookups.max_rate",
    "uplink.heartbeat", "uplink.resend_after", "uplink.max_bytes",
    "broker.url",
    "input.paths", "input.format", "input.timezone", "input.logsource", "input.from_start", "input.multiline",
    "input.containers",
    "input.units", "input.exclude_units", "input.priority", "input.include", "input.exclude", "input.fields",
    "input.headers", "input.session_expiry", "input.max_connections", "input.max_connections_per_peer",
    "input.message_timeout", "input.max_body", "input.max_rate", "input.receive_buffer",
    "sink.level", "sink.rules", "sink.tags", "sink.timeout", "sink.format", "sink.facility", "sink.keep",
    "sink.max_bytes", "sink.max_memory",
    "log.format", "log.level",
})  # fmt: skip
"""All that an overlay may change: bounds, formats, filters, which logs are read, which signed rules run. Nothing here
names a key, a program, or where to listen or send. ``broker.url`` is where the region is: what answers there needs a
certificate of the CA that the host names, and an overlay does not give up TLS."""
READING = ("input.format", "input.multiline", "input.containers")
"""Locked where the owner redacts: how an input is read says which of its fields there are to redact."""
ADDED = ("file", "journal")
"""Types of inputs that an overlay may add: they take what the host has, and listen nowhere."""
_TABLES = frozenset(name.partition(".")[0] for name in OPEN)
_BY_NAME = ("input", "sink", "ruleset")
_APART: dict[str, Collection[str]] = {"input": INPUT_TYPES, "sink": SINK_TYPES}
"""Tables whose settings go by a type, which the host has; with the types."""
MAX_OVERLAY = 1 << 20
"""Bytes."""
MAX_STARTS = 5
"""In a row without having been healthy, under one overlay."""
MAX_UNDONE = 50
"""Overlays that are remembered as undone, the newest ones."""


def merged(
    local: dict[str, Any], overlay: dict[str, Any], locked: Container[str] = ()
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """``local`` with ``overlay`` over it, and which of its settings were left out, as ``table.key``, a table,
    ``input NAME`` or ``input NAME.key``. Neither is changed."""
    result, ignored = _merged(local, overlay, locked)
    return result, tuple(ignored)


_Ignored = dict[str, bool]
"""Whether a setting of the overlay that is left out is lacking: the host does not lock it."""


def _merged(local: dict[str, Any], overlay: dict[str, Any], locked: Container[str]) -> tuple[dict[str, Any], _Ignored]:
    result, ignored = copy.deepcopy(local), _Ignored()
    for table, value in overlay.items():
        if table in locked or table not in _TABLES:
            ignored[table] = table not in locked
        elif table in _BY_NAME and isinstance(value, list):
            result[table] = _named(table, result.get(table, []), value, locked, ignored)
        elif table in OPEN:
            result[table] = copy.deepcopy(value)
        elif isinstance(value, dict):
            below = result.get(table)
            above = _over(below if isinstance(below, dict) else {}, value, table, table, locked, ignored)
            if above:
                result[table] = above
        else:
            ignored[table] = True
    return result, ignored


def _over(
    below: dict[str, Any], above: dict[str, Any], table: str, where: str, locked: Container[str], ignored: _Ignored
) -> dict[str, Any]:
    """One table; ``where`` is what it is called in ``ignored``."""
    result = dict(below)
    for key, value in above.items():
        here = f"{table}.{key}"
        if here not in OPEN or here in locked or (here == "broker.url" and _gives_up_tls(below.get(key), value)):
            ignored[f"{where}.{key}"] = here not in locked
        else:
            result[key] = copy.deepcopy(value)
    return result


def _gives_up_tls(before: Any, after: Any) -> bool:
    return str(before).startswith("mqtts:") and not str(after).startswith("mqtts:")


def _named(table: str, below: Any, above: list[Any], locked: Container[str], ignored: _Ignored) -> list[Any]:
    """Tables of the overlay change those of the same name, and type where they say one; rule sets and inputs of ADDED
    are added, too. A name alone is for the hosts that have it; with a type it is lacking where it is not."""
    result = [*below] if isinstance(below, list) else []
    for item in above:
        if not isinstance(item, dict):
            result.append(item)  # for the reader to refuse
            continue
        where = f"{table} {item.get('name')}"
        at = next((i for i, own in enumerate(result) if isinstance(own, dict) and _same(own, item)), None)
        if where in locked or (at is None and not _is_added(table, item)):
            ignored[where] = where not in locked and "type" in item
            continue
        own = {key: item[key] for key in ("name", "type") if key in item} if at is None else result[at]
        rest = {key: value for key, value in item.items() if key not in ("name", "type")}
        changed = _over(own, rest, table, where, locked, ignored)
        if at is None:
            result.append(changed)
        else:
            result[at] = changed
    return result


def _is_added(table: str, item: dict[str, Any]) -> bool:
    return table == "ruleset" or (table == "input" and item.get("type") in ADDED)


def _same(own: dict[str, Any], item: dict[str, Any]) -> bool:
    kind = item.get("type", own.get("type"))
    return own.get("name") == item.get("name") and own.get("type", kind) == kind


def check(overlay: dict[str, Any]) -> None:
    """Raises ValueError, with every reason, for what no agent takes, and for what no overlay changes."""
    if mistakes := part_mistakes({table: _typed(table, value) for table, value in overlay.items()}):
        raise ValueError("\n".join(f"overlay: {mistake}" for mistake in mistakes))
    local = {table: [{"name": item.get("name")} for item in overlay.get(table, ())] for table in _APART}
    document, ignored = merged(local, overlay)
    if ignored:
        raise ValueError(f"{', '.join(ignored)}: no overlay changes this")
    for table in _APART:
        for item in overlay.get(table, ()):
            if item.keys() == {"name", "type"} and not _is_added(table, item):
                raise ValueError(f"{table} {item['name']}: no overlay adds one of type {item['type']}")
    parse_document({table: value for table, value in document.items() if table not in _APART}, "overlay")


def _typed(table: str, value: Any) -> Any:
    """``value`` of an overlay; an input or a sink that is called by its name alone is of the type that fits it best."""
    if table not in _APART or not isinstance(value, list):
        return value

    def misfit(item: dict[str, Any]) -> tuple[int, int]:
        mistakes = part_mistakes({table: [item]})
        return sum(isinstance(line, UnknownKey) for line in mistakes), len(mistakes)

    return [
        min(({**item, "type": kind} for kind in _APART[table]), key=misfit)
        if isinstance(item, dict) and "name" in item and "type" not in item
        else item
        for item in value
    ]


def under(text: str, path: Path, sha256: str, data: bytes) -> Config:
    """The local file ``text`` with the overlay ``data`` over it. Raises ConfigError, with every mistake."""
    local = enrolled(parse(text, path))
    try:
        overlay = read_toml(data.decode("utf-8"))
    except ValueError as error:  # of UTF-8, too
        raise ConfigError(f"overlay {sha256[:12]}", [str(error)]) from error
    by_itself = {table: value for table, value in overlay.items() if table not in _APART}
    said = part_mistakes(by_itself)
    if mistakes := [line for line in said if not isinstance(line, UnknownKey)]:
        raise ConfigError(f"overlay {sha256[:12]}", mistakes)
    locked = {*local.fleet.locked, *(READING if local.redact else ())}
    document, ignored = _merged(tomllib.loads(text), overlay, locked)
    config = enrolled(parse_document(document, f"{path} with overlay {sha256[:12]}"))
    lacking = tuple(name for name, is_lacking in ignored.items() if is_lacking)
    return replace(config, overlay=Overlay(sha256, tuple(ignored), lacking))


def load(path: Path, *, starting: bool = False) -> Config:
    """The configuration in the file ``path``, with the overlay that is in force over it. ``starting``: an agent begins
    with it; one that died of the overlay again and again undoes it here.

    An overlay that no longer fits the local file is left out, and ``overlay.problem`` says why; for rule sets
    whose bundle the fleet governs, ``file`` does not count. Raises ConfigError for the local file alone."""
    text = read_text(path)
    local = enrolled(parse(text, path))
    if local.fleet.root is None:
        return local
    try:
        applied = Applied.open(local.agent.fleet_dir)
        if starting:
            applied.started()
        config = local
        if applied.state.active:
            try:
                config = under(text, path, applied.state.active, applied.read(applied.state.active))
            except (OSError, ValueError) as error:
                config = replace(local, overlay=Overlay(problem=str(error)))
    except (OSError, ValueError) as error:
        return replace(local, overlay=Overlay(problem=str(error)))
    governed = applied.state.governed
    if DEFAULT_SET in governed:
        config = replace(config, bundles=replace(config.bundles, file=None))
    sets = tuple(replace(ruleset, file=None) if ruleset.name in governed else ruleset for ruleset in config.ruleset)
    return replace(config, ruleset=sets)


class AppliedState(Struct, frozen=True, forbid_unknown_fields=True):
    """What ``overlay.json`` holds."""

    active: str = ""
    previous: str = ""
    confirmed: bool = True
    starts: int = 0
    """Since the overlay came, or since the agent was last healthy under it."""
    undone: dict[str, str] = {}
    """Why, by SHA-256."""
    governed: tuple[str, ...] = ()
    """The rule sets for which a signed document has named a bundle."""


@dataclass(slots=True)
class Applied:
    """Which overlay is in force; one agent at a time. Every method blocks on the disk and raises OSError."""

    folder: Path
    state: AppliedState

    @classmethod
    def open(cls, folder: Path) -> Applied:
        """Raises ValueError when the file is not what it should be."""
        try:
            return cls(folder, documents.read(AppliedState, orjson.loads((folder / "overlay.json").read_bytes())))
        except FileNotFoundError:
            return cls(folder, AppliedState())
        except ValueError as error:
            raise ValueError(f"{folder / 'overlay.json'} cannot be read ({error}): remove it") from error

    def read(self, sha256: str) -> bytes:
        return (self.folder / "overlays" / f"{sha256}.toml").read_bytes()

    def begin(self, sha256: str, data: bytes = b"") -> None:
        """``data`` is in force from now on, unconfirmed; no SHA-256: no overlay is."""
        if sha256:
            (self.folder / "overlays").mkdir(parents=True, exist_ok=True)
            write_whole(self.folder / "overlays" / f"{sha256}.toml", data)
        before = self.state
        good = before.active if before.confirmed else before.previous
        self._write(structs.replace(before, active=sha256, previous=good, confirmed=False, starts=0))
        self._prune()

    def started(self) -> None:
        """An agent begins under what is in force."""
        if self.state.confirmed:
            return
        if self.state.starts >= MAX_STARTS:
            self.undo(f"the agent ended {self.state.starts} times before it was healthy")
            return
        self._write(structs.replace(self.state, starts=self.state.starts + 1))

    def healthy(self) -> None:
        """The agent is, under what is in force: its starts count from here."""
        if not self.state.confirmed and self.state.starts:
            self._write(structs.replace(self.state, starts=0))

    def confirm(self) -> None:
        self._write(structs.replace(self.state, confirmed=True, starts=0, previous=""))
        self._prune()

    def undo(self, reason: str) -> None:
        """What was in force before is again; the undone one is remembered, also where it is that there be none."""
        others = dict([*self.state.undone.items()][-MAX_UNDONE + 1 :])
        others.pop(self.state.active, None)
        undone = {**others, self.state.active: reason}
        self._write(AppliedState(self.state.previous, "", True, 0, undone, self.state.governed))

    def forgive(self, sha256: str) -> None:
        """Forget that an overlay was undone: it was not its fault."""
        undone = {key: why for key, why in self.state.undone.items() if key != sha256}
        self._write(structs.replace(self.state, undone=undone))

    def refuse(self, sha256: str, reason: str) -> None:
        """An overlay that was never in force is not taken again."""
        others = dict([*self.state.undone.items()][-MAX_UNDONE + 1 :])
        self._write(structs.replace(self.state, undone={**others, sha256: reason}))

    def govern(self, ruleset: str) -> None:
        """From now on this rule set runs a bundle because a signed document names it, and for no other reason."""
        if ruleset not in self.state.governed:
            self._write(structs.replace(self.state, governed=(*self.state.governed, ruleset)))

    def _write(self, state: AppliedState) -> None:
        if state != self.state:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self.folder / "overlay.json", orjson.dumps(structs.asdict(state)))
            self.state = state

    def _prune(self) -> None:
        for path in self._files():
            if path.stem not in (self.state.active, self.state.previous):
                path.unlink(missing_ok=True)

    def _files(self) -> Iterator[Path]:
        return (self.folder / "overlays").glob("*.toml")


@dataclass(slots=True)
class Watch:
    """Whether an unconfirmed overlay stays: pure, of times (seconds) and what is wrong at each."""

    after: float
    """Seconds: well for so long, it is confirmed; unwell for so long, or undecided for three times as long, undone."""
    began: float
    well_since: float | None = None
    unwell_since: float | None = None

    def see(self, now: float, wrong: str) -> str | None:
        """``wrong``: why the agent is unwell, empty when it is well. "" to confirm, a reason to undo, None to wait."""
        if wrong:
            self.well_since = None
            self.unwell_since = now if self.unwell_since is None else self.unwell_since
            if now - self.unwell_since >= self.after or now - self.began >= 3 * self.after:
                return f"{wrong}, for {now - self.unwell_since:.0f} s after the overlay came"
            return None
        self.unwell_since = None
        self.well_since = now if self.well_since is None else self.well_since
        return "" if now - self.well_since >= self.after else None
