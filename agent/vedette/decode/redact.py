"""Redaction: what an owner's rules say must not leave the host, taken out of every text of one event.

``Redaction.case`` finds it, ``Case`` takes it out. What is found:

* values of **fields** by their names, also of those beside which nothing of the event is shown;
* **entities** of a kind, with the fields that they were read from;
* what **patterns** and the owner's expressions match, in the raw event and in its fields, each read as ``name=value``.

A value that was found anywhere goes everywhere: from fields, entities, keys of groups, titles and the raw event, there
in whatever form it stands (``escapes.py``), in upper or lower case. It becomes ``MARK``, or for ``hash`` a keyed digest
(HMAC-SHA-256, RFC 2104) that is the same for the same value under the same key. **In doubt nothing leaves**: a text at
which an expression takes too long becomes ``SLOW``; a raw event in which the value of a redacted field is not found (it
is composed, or stands there in a form that is not known) becomes ``MARK`` as a whole. Where a text gives the name of a
redacted field a value that no decoder has given (JSON that is cut or has a name twice, an input whose format is another
one), or not to its end, that value becomes ``MARK``, in doubt with what is behind it (``assigned.py``).

Values of less than ``SHORT`` characters are taken out where they stand as words, since else nothing readable were left.
Pure: the key is an argument.
"""

from __future__ import annotations

import hmac
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from itertools import islice
from typing import NamedTuple, TypeVar

from vedette.decode import entities
from vedette.decode.aliases import ALIASES
from vedette.decode.assigned import assigned, broken, hides, labelled, names, says
from vedette.decode.escapes import View, views
from vedette.decode.secrets import PATTERNS, Compiled, named, written
from vedette.decode.values import Value, lowered
from vedette.model.event import address

MASK = "mask"
HASH = "hash"
DROP = "drop"
MARK = "[redacted]"
SLOW = "[redacted: a pattern took too long]"
HASHED = "hash:"
"""Before 32 hex digits."""
SECONDS = 0.02
"""For one pattern on one text."""
TRIES = 10.0
"""Times that patterns may take too long before the slow ones are left out, and texts with them; one comes back every
``1 / RECOVERY`` events."""
RECOVERY = 0.1
WINDOW = 8 << 10
"""Characters of a text that are looked at; what follows does not leave."""
READ = 256
"""Characters of a field's value up to which it is read as ``name=value`` though it is not shown."""
MAX_UNREAD = 64
"""Words that no decoder has read as values, and that are taken out of other texts, too."""
SHORT = 4
DEPTH = 64
"""Parts of a field's name up to which it is compared; a deeper one counts as redacted."""
KEY_BYTES = 32
TEXT = "\0text"
"""As a field's name: the whole text of events, and so all of their fields."""
_OWN = frozenset({"peer", "topic", "topic_levels"})
"""Fields of the agent's own knowledge: their values need not stand in the event."""


T = TypeVar("T")


class Rule(NamedTuple):
    """One ``[[redact]]``."""

    action: str = MASK
    fields: tuple[str, ...] = ()
    """Names, which may hold ``*`` and ``?``; of an object all that is in it. One without a dot means any depth."""
    kinds: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    expressions: tuple[str, ...] = ()


class Shown(NamedTuple):
    """The parts of an event that would leave, besides its text: ``fields`` by name, ``origins`` the fields behind those
    that are called otherwise, ``texts`` made of values, ``entities`` as pairs of kind and value."""

    fields: Mapping[str, str] = {}
    origins: Mapping[str, Iterable[str]] = {}
    texts: Sequence[str] = ()
    entities: Iterable[tuple[str, str]] = ()


NOTHING_SHOWN = Shown()


def _remembered(of_name: Callable[[str], T]) -> Callable[[str], T]:
    """But for long names: a sender may write them."""
    cached = lru_cache(maxsize=4096)(of_name)
    return lambda name: cached(name) if len(name) <= entities.MAX_KEPT else of_name(name)


class Redaction:
    """The rules of one configuration."""

    def __init__(
        self, rules: Iterable[Rule], key: bytes | None = None, *, seconds: float = SECONDS, window: int = WINDOW
    ) -> None:
        """``key``: without one, what shall be hashed is masked. Raises ValueError for an expression, KeyError for a
        pattern that is none."""
        self.rules = tuple(rules)
        self.key = "" if key is None else key.hex()
        self.seconds = seconds
        self.window = window
        self._globs = [(rule.action, name.lower()) for rule in self.rules for name in rule.fields]
        within = [glob.split(".") for _, glob in self._globs if "." in glob]
        self._ends = [parts[-2 if parts[-1] == "*" else -1] for parts in within]
        """Of names within objects the part that stands in a text."""
        self._kinds = {kind: rule.action for rule in reversed(self.rules) for kind in rule.kinds}
        self._like = [
            (rule.action, like)
            for rule in self.rules
            for name in rule.patterns
            if (like := PATTERNS[name].named) is not None
        ]
        self.patterns: list[tuple[str, Compiled]] = [
            (rule.action, pattern)
            for rule in self.rules
            for pattern in (*map(named, rule.patterns), *map(written, rule.expressions))
        ]
        self.doubtful = _remembered(self._doubtful)
        """Whether a value that a text gives this name may be one that is redacted, if only as a key of an object."""
        self.named = _remembered(self._named)
        """By a field's name what is done with its value; None: nothing."""
        self.tries = TRIES
        self.slow = set[int]()

    def __bool__(self) -> bool:
        return bool(self.rules)

    @property
    def by_field(self) -> bool:
        """Whether an event's fields must be known."""
        return bool(self._globs or self._kinds or self._like)

    def kind(self, kind: str) -> str | None:
        """Return the action for entities of this kind; None: nothing is done."""
        return self._kinds.get(kind)

    def _named(self, name: str) -> str | None:
        if name == TEXT:
            return MASK if self.by_field else None
        for alias in (name, *ALIASES.get(name, ())):
            parts = [part for part in alias.lower().split(".") if part]
            if self._globs and len(parts) > DEPTH:
                return self._globs[0][0]
            tried = [*(".".join(parts[: i + 1]) for i in range(len(parts))), *(parts if alias == name else ())]
            tried += [each.replace("@", "") for each in tried if "@" in each]  # SQL's parameters, attributes
            for action, glob in self._globs:
                if any(fnmatchcase(each, glob) for each in tried):
                    return action
            for action, like in self._like:
                if like.fullmatch(alias):
                    return action
        return self._kinds.get(entities.kind_of(name) or "")

    def _doubtful(self, name: str) -> bool:
        return self.named(name) is not None or any(fnmatchcase(name.lower(), end) for end in self._ends)

    def action(self, name: str, origins: Iterable[str] = ()) -> str | None:
        """Return the action for a field that comes from others."""
        return next((action for field in (name, *origins) if (action := self.named(field)) is not None), None)

    def hidden(self, value: str, action: str) -> str:
        """Return the text that stands in place of ``value``."""
        if action != HASH or not self.key:
            return MARK
        text = _canonical(value).encode("utf-8", "surrogatepass")
        return HASHED + hmac.new(bytes.fromhex(self.key), text, "sha256").hexdigest()[:32]

    def case(
        self, raw: str, fields: Mapping[str, Value] | None, *, host: str | None = None, shown: Shown = NOTHING_SHOWN
    ) -> Case:
        """``raw``: the event's text. ``fields``: all that are decoded; None: they cannot be. ``host``: as the alert has
        it."""
        self.tries = min(TRIES, self.tries + RECOVERY)
        return Case(self, raw, fields, host, shown)


_SIGNS = " \t\r\n,;&|)}]>\"'\\"
"""What may stand behind a bare value and is no part of it."""


def _canonical(value: str) -> str:
    """One text for what means the same: a name in upper and lower case, an address however it is written."""
    parsed = address(value) if ":" in value else None
    return str(parsed or value.strip().lower())


class Case:
    """One event, and what must not leave of it; ``redacted`` names what it was taken out of, ``failed`` counts texts
    that were given up."""

    def __init__(
        self, redaction: Redaction, raw: str, fields: Mapping[str, Value] | None, host: str | None, shown: Shown
    ) -> None:
        self._redaction = redaction
        self._raw = raw[: redaction.window]
        self._origins = shown.origins
        self._texts = dict[str, str]()
        self._values = dict[str, tuple[str, str]]()
        self._views = dict[str, tuple[View, ...]]()
        self._unread_spans = dict[str, list[tuple[int, int, str]]]()
        self._read = set[tuple[str, str]]()
        """Fields in which patterns were looked for."""
        self._must = set[str]()
        """Those of ``_values`` that stand in the event."""
        self._fields = fields or {}
        self._blind = fields is None and redaction.by_field
        self.redacted = dict[str, None]()
        self.failed = 0
        leaves = [(name, str(value)) for name, value in entities.leaves(fields or {}) if value is not None]
        if len(leaves) >= entities.MAX_VALUES:
            self._blind = redaction.by_field
        self._by_name(leaves, host, shown)
        if redaction.patterns:
            self._by_patterns(leaves, shown)
        if redaction.by_field:
            for start, end, _ in self._unread(self._raw)[:MAX_UNREAD]:
                if len(word := self._raw[start:end].split()) == 1:
                    self._add(word[0].rstrip(",;&|"), MASK)

    # --- what is found

    def _add(self, value: str, action: str, *, must: bool = False) -> None:
        lower = lowered(value)
        if (len(value) > 1 or value.isalnum()) and lower.strip() not in entities.NOTHING:
            self._values.setdefault(lower, (value, action))
            if must:
                self._must.add(lower)

    def _by_name(self, leaves: Sequence[tuple[str, str]], host: str | None, shown: Shown) -> None:
        redaction = self._redaction
        if not redaction.by_field:
            return
        for name, text in (*leaves, *labelled(leaves)):
            action = redaction.named(name)
            inside = entities.of_field(name, text)
            if action is not None:
                self._add(text, action, must=name not in _OWN and not name.startswith("topic_level_"))
            for entity in inside:
                if (of_kind := action or redaction.kind(entity.kind)) is not None:
                    self._add(entity.value, of_kind)
                    if lowered(entity.value) not in lowered(text):  # it is written otherwise there
                        self._add(text, of_kind, must=True)
        if host and (action := self._host_action(host)) is not None:
            self._add(host, action)
        for name, text in shown.fields.items():
            if (action := self.action(name)) is not None and TEXT not in self._origins.get(name, ()):
                self._add(text, action)
                for entity in entities.of_field(name, text):
                    self._add(entity.value, action)
        for kind, text in shown.entities:
            if (action := redaction.kind(kind)) is not None:
                self._add(text, action)

    def host(self, host: str) -> str | None:
        """The host that an alert names; None: it is dropped."""
        if (action := self._host_action(host)) is None:
            return self.text(host, "host")
        self.redacted["host"] = None
        return None if action == DROP else self._redaction.hidden(host, action)

    def _host_action(self, host: str) -> str | None:
        named = self._redaction.named("hostname") or self._redaction.named("host")
        return named or next((a for entity in entities.of_host(host) if (a := self._redaction.kind(entity.kind))), None)

    def action(self, name: str) -> str | None:
        """Return the action for the field of this name, or for those that it comes from."""
        return self._redaction.action(name, self._origins.get(name, ()))

    def _by_patterns(self, leaves: Sequence[tuple[str, str]], shown: Shown) -> None:
        """The values that patterns match; a text at which one takes too long is known by its ``SLOW``."""
        self._scan(self._raw)
        rows = dict.fromkeys((name, text) for name, text in leaves if len(text) <= READ)
        rows.update(dict.fromkeys((name, text[: self._redaction.window]) for name, text in shown.fields.items()))
        places = list[tuple[int, int]]()
        parts = list[str]()
        at = 0
        for name, text in rows:
            if at + len(name) + len(text) > 2 * self._redaction.window:
                break  # those that are shown are read one by one when they are taken
            places.append((at + len(name) + 1, at + len(name) + 1 + len(text)))
            parts.append(f"{name}={text}")
            at += len(parts[-1]) + 1
        if self._scan("\n".join(parts), places):
            self._read.update(islice(rows, len(parts)))
        else:
            self._blind = True
        for text in shown.texts:
            self._scan(text[: self._redaction.window])

    def _scan(self, text: str, places: Sequence[tuple[int, int]] | None = None) -> bool:
        """Add what patterns match of ``text``, or of its ``places``; False: one took too long."""
        redaction = self._redaction
        for view in self._viewed(text):
            lower = view.text.lower()
            for number, (action, pattern) in enumerate(redaction.patterns):
                if number in redaction.slow and redaction.tries < 1:
                    return self._slow(text)
                try:
                    spans = pattern.of(view.text, lower, redaction.seconds)
                except TimeoutError:
                    redaction.tries -= 1
                    redaction.slow.add(number)
                    return self._slow(text)
                for start, end in spans:
                    if places is None:
                        self._add(view.text[start:end], action)
                        continue
                    first, last = view.span(start, end)
                    for begin, stop in places:
                        if begin < last and first < stop:
                            plain = view.starts is None
                            inner = text[max(begin, first) : min(stop, last)]
                            self._add(inner if plain or first < begin else view.text[start:end], action)
        return True

    def _viewed(self, text: str) -> tuple[View, ...]:
        """A text is looked at twice: for what to take out, and to do it."""
        cached = self._views.get(text)
        if cached is None:
            cached = self._views[text] = tuple(views(text))
        return cached

    def _slow(self, text: str) -> bool:
        self._texts[text] = SLOW
        return False

    # --- what is taken out

    def text(self, text: str, name: str = "") -> str:
        """``text`` without what was found; ``name``: what it is called in ``redacted``."""
        result = self._texts.get(text)
        if result is None:
            if len(text) > self._redaction.window:
                result = self._taken(text[: self._redaction.window])[0]
            else:
                result = self._texts[text] = self._taken(text)[0]
        if result != text and name:
            self.redacted[name] = None
        if result is SLOW:
            self.failed += 1
        return result

    def field(self, name: str, text: str) -> str | None:
        """The value of a field that is shown; None: it is dropped."""
        if (action := self.action(name)) is not None:
            self.redacted[name] = None
            return None if action == DROP else self._redaction.hidden(text, action)
        if self._redaction.patterns and (name, text) not in self._read and text not in self._texts:
            row = f"{name}={text}"[: self._redaction.window]
            if not self._scan(row, [(len(name) + 1, len(row))]):
                self._texts[text] = SLOW
        return self.text(text, name)

    def fields(self, fields: Mapping[str, str]) -> dict[str, str]:
        shown = {name: self.field(name, text) for name, text in fields.items()}
        return {name: text for name, text in shown.items() if text is not None}

    def entity(self, kind: str, value: str) -> str | None:
        """None: it is dropped."""
        action = self._redaction.kind(kind)
        if action is None and (match := self._values.get(lowered(value))) is not None:
            action = match[1]
        if action is None:
            return self.text(value, "entities")
        self.redacted["entities"] = None
        return None if action == DROP else self._redaction.hidden(value, action)

    def raw(self) -> tuple[str, int]:
        """The event's text, up to ``WINDOW``, and in how many places something was taken out."""
        cached = self._texts.get(self._raw)
        if cached is SLOW:
            self.failed += 1
            self.redacted["raw"] = None
            return SLOW, 1
        if not self._raw:
            return "", 0
        text, count, values = self._taken(self._raw)
        if self._blind or not self._must <= values:
            text = MARK
            count = max(1, count)
        if count:
            self.redacted["raw"] = None
        return text, count

    def _taken(self, text: str) -> tuple[str, int, set[str]]:
        """``text`` without the values, in how many places some were, and which."""
        spans, values = self._found(text)
        if self._redaction.by_field:
            spans += self._unread(text)
        if not spans:
            return text, 0, values
        result, count = _cut(text, spans)
        left = lowered(result)
        if any(len(value) >= SHORT and value in left and value not in MARK for value in self._values):
            return MARK, count, values  # what stood on both sides of a mark has met
        return result, count, values

    def _found(self, text: str) -> tuple[list[tuple[int, int, str]], set[str]]:
        """Where values stand in ``text``, with what is put there, and which."""
        spans = list[tuple[int, int, str]]()
        values = set[str]()
        for view in self._viewed(text) if self._values and text else ():
            lower = lowered(view.text)
            for value, (written_so, action) in self._values.items():
                for start in _places(lower, value):
                    spans.append((*view.span(start, start + len(value)), self._redaction.hidden(written_so, action)))
                    values.add(value)
        return spans, values

    def _unread(self, text: str) -> list[tuple[int, int, str]]:
        """Where names that are redacted have values in ``text`` that are none of a decoded field's."""
        cached = self._unread_spans.get(text)
        if cached is not None:
            return cached
        spans = self._unread_spans[text] = list[tuple[int, int, str]]()
        doubtful = self._redaction.doubtful
        forms = list[View]()
        for view in self._viewed(text) if hides(text) else (View(text),):
            plain, in_lines = (any(map(doubtful, each)) for each in names(view.text))
            forms += [view] * plain
            if in_lines and (lines := broken(view)) is not None:
                forms.append(lines)
        if forms:
            left, words = bytearray(b"\1" * len(text)), bytearray(map(str.isalnum, text))
            for start, end, _ in self._found(text)[0]:
                left[start:end] = words[start:end] = bytes(end - start)
            for view in forms:
                for start, end in self._unread_of(text, view, left, words):
                    left[start:end] = words[start:end] = bytes(end - start)
                    spans.append((start, end, MARK))
        return spans

    def _unread_of(self, text: str, view: View, left: bytearray, words: bytearray) -> Iterator[tuple[int, int]]:
        """``_unread`` of ``text`` as ``view`` reads it; ``left``: which of its characters are not taken out yet;
        ``words``: which of these are letters or digits."""
        places = defaultdict[tuple[bool, str], list[tuple[int, int]]](list)
        more = set[tuple[bool, str]]()
        """Of what there are more than decoded fields that may leave."""
        for name, value, start, end, whole, key in assigned(text, view, self._redaction.doubtful):
            if left.find(1, start, end) < 0 or not (key or self._redaction.named(name)):
                continue
            cut = left.find(0, start, end) >= 0
            if words.find(1, start, end) >= 0 if cut else says(lowered(value.rstrip(_SIGNS))):
                kind = whole, name.lower()
                places[kind].append((start, end))
                if kind in more or len(places[kind]) > self._decoded[whole][kind[1]]:
                    more.add(kind)
                    yield from places.pop(kind)

    @cached_property
    def _decoded(self) -> tuple[Counter[str], Counter[str]]:
        """By the last part of its name how many fields have a value that may leave, and how many hold others."""
        values, wholes = Counter[str](), Counter[str]()
        stack: list[tuple[str, Value, bool]] = [(name, value, False) for name, value in self._fields.items()]
        for _ in range(entities.MAX_VALUES):
            if not stack:
                break
            name, value, listed = stack.pop()
            last = "" if listed else name.rpartition(".")[2].lower()
            if isinstance(value, dict):
                wholes[last] += 1
                stack += [(entities.below(name, key), inner, False) for key, inner in value.items()]
            elif isinstance(value, list):
                wholes[last] += 1
                stack += [(name, inner, True) for inner in value]
            elif self._redaction.named(name) is None and (lower := lowered(str(value))) not in self._values:
                values[last] += says(lower)
        return values, wholes


def _cut(text: str, spans: Iterable[tuple[int, int, str]]) -> tuple[str, int]:
    """``text`` with other texts in place of ``spans``, and how many places that are."""
    merged = list[tuple[int, int, str]]()
    for start, end, mark in sorted(spans, key=lambda span: (span[0], -span[1])):
        if merged and start < merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end, MARK)
        else:
            merged.append((start, end, mark))
    parts = list[str]()
    at = 0
    for start, end, mark in merged:
        parts += (text[at:start], mark)
        at = end
    return "".join((*parts, text[at:])), len(merged)


def _places(text: str, value: str) -> Iterator[int]:
    at = text.find(value)
    short = len(value) < SHORT
    while at >= 0:
        end = at + len(value)
        if not short or not (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum()):
            yield at
        at = text.find(value, at + 1 if short else end)
