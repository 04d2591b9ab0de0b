"""Synthetic Sigma rule sets of any size, for a given stream: mostly rules that never match, some that do.

Of ``count`` rules 60 % test ``contains`` (keywords or a field), 20 % a regular expression, 20 % combine several
selections. Half of their literals are random words; the other half are built from the stream's own vocabulary, each
word of which is common, so that only their combination is rare: a phrase that does not occur, or a common word that
must stand beside a rare one. A prefilter that picks the wrong one of two literals is found out by these.

Of ``always`` a share is without any literal, so that a prefilter can rule out no event for them.

Among them are **tuned** rules, whose literals were measured in a sample so that about ``share`` of all events hold
one of them (candidates), and about ``alert_share`` also match; the rest of the candidates is excluded by a filter
that only evaluation can apply.
"""

from __future__ import annotations

import json
import re
import uuid
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import TypeVar

_T = TypeVar("_T")
SAMPLE = 20_000
"""Lines of the stream that are measured."""
FREQUENT = 0.05
"""From this share of candidates on, tuned rules have frequent words, too."""
_TOKEN = re.compile(rb"[A-Za-z][A-Za-z0-9_./-]{3,24}[A-Za-z0-9](?![A-Za-z0-9_./-])|(?:\d{1,3}\.){3}\d{1,3}(?!\d)")
_PROGRAM = re.compile(rb"<\d+>(?:1 \S+ \S+ (\S+)|\w{3} [ \d]\d \S+ \S+ ([^\s:\[]+))")
_CONSONANTS, _VOWELS = "bcdfghjklmnpqrstvwxz", "aeiou"


class Vocabulary:
    """What a sample of the stream holds."""

    def __init__(self, sample: Sequence[bytes]) -> None:
        self._holding: dict[str, frozenset[int]] = {}
        self.lines = [line.lower() for line in sample[:SAMPLE]]
        self.text = b"\n".join(self.lines)
        self._starts = list(accumulate((len(line) + 1 for line in self.lines), initial=0))
        plain = re.sub(rb"\d+", b"0", self.text)
        self._words, self._plain = b"\n".join(set(plain.split())), b"\n".join(set(plain.split(b"\n")))
        seen: Counter[str] = Counter()
        programs: defaultdict[str, set[str]] = defaultdict(set)
        for line in sample[:SAMPLE]:
            match = _PROGRAM.match(line)
            program = (match[1] or match[2]).decode() if match else ""
            for token in {token.decode() for token in _TOKEN.findall(line)}:
                seen[token] += 1
                programs[token].add(program)
        self.common = [token for token, n in seen.most_common(400) if n * 1000 >= len(self.lines)]
        self.tunable = [
            (token, sorted(programs[token]), n)
            for token, n in sorted(seen.items())
            if "" not in programs[token] and n >= 2
        ]

    def has(self, text: bytes) -> bool:
        """Whether the sample holds ``text`` (lower case); searched where there is least of it."""
        if re.search(rb"\d", text):
            return text in self.text
        return text in (self._plain if re.search(rb"\s", text) else self._words)

    def holding(self, token: str) -> frozenset[int]:
        """The sample's lines that contain ``token`` in any case."""
        if token not in self._holding:
            needle, lines, at = token.lower().encode(), set(), -1
            while (at := self.text.find(needle, at + 1)) >= 0:
                lines.add(bisect_right(self._starts, at) - 1)
            self._holding[token] = frozenset(lines)
        return self._holding[token]


@lru_cache(maxsize=2)
def _vocabulary(sample: tuple[bytes, ...]) -> Vocabulary:
    return Vocabulary(sample)


def _word(rng: Random) -> str:
    return "".join(rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(rng.randrange(3, 6)))


def rule(rng: Random, title: str, detection: dict[str, object], level: str = "medium") -> str:
    """The text of a rule; JSON is the flow style of YAML."""
    return (
        f"title: {title}\n"
        f"id: {uuid.UUID(int=rng.getrandbits(128), version=4)}\n"
        "status: test\n"
        "description: Made by bench/rules.py\n"
        "author: Vedette\n"
        "logsource:\n    product: linux\n"
        f"detection: {json.dumps(detection)}\n"
        f"level: {level}\n"
    )


class Maker:
    """Draws rules that should not match the stream."""

    def __init__(self, rng: Random, vocabulary: Vocabulary) -> None:
        self.rng, self.vocabulary = rng, vocabulary

    def rare(self, ordinary: bool) -> str:
        """A literal that the sample does not hold, built from its words when ``ordinary``."""
        while True:
            words = self.rng.choices(self.vocabulary.common, k=2) if ordinary and self.vocabulary.common else []
            literal = " ".join(words) or _word(self.rng)
            parts = literal.lower().encode().split(b"/")  # JSON may escape a slash: nobody can search across one
            if any(len(part) > 4 and not self.vocabulary.has(part) for part in parts):
                return literal

    def _pair(self, ordinary: bool) -> list[str]:
        """Literals that must all occur: the first is common when ``ordinary``."""
        first = self.rng.choice(self.vocabulary.common) if ordinary and self.vocabulary.common else _word(self.rng)
        return [first, self.rare(False)]

    def contains(self, ordinary: bool) -> dict[str, object]:
        match self.rng.randrange(4):
            case 0:
                return {
                    "keywords": [self.rare(ordinary) for _ in range(self.rng.randrange(1, 4))],
                    "condition": "keywords",
                }
            case 1:
                return {"selection": {"message|contains|all": self._pair(ordinary)}, "condition": "selection"}
            case 2:
                return {"selection": {"command|contains": self.rare(ordinary)}, "condition": "selection"}
            case _:
                literals = [self.rare(ordinary) for _ in range(self.rng.randrange(1, 4))]
                return {"selection": {"message|contains": literals}, "condition": "selection"}

    def regex(self, ordinary: bool) -> dict[str, object]:
        first, second = (re.escape(word) for word in self._pair(ordinary))
        pattern = self.rng.choice(
            (rf"{first}\s+-[a-z]+\s+{second}", rf"(curl|wget)\s+\S*{second}", rf"{first}.{{1,40}}{second}\d+")
        )
        modifier = self.rng.choice(("re", "re", "re|i"))
        return {"selection": {f"message|{modifier}": pattern}, "condition": "selection"}

    def without(self, ordinary: bool) -> dict[str, object]:
        first, second = self.rng.randrange(3, 9), self.rng.randrange(12, 30)
        return {"selection": {"message|re": rf"[a-z]{{{first}}}=[0-9]{{{second}}}[A-Z]"}, "condition": "selection"}

    def several(self, ordinary: bool) -> dict[str, object]:
        rng = self.rng
        program = rng.choice(("sshd", "sudo", "CRON", "nginx", "systemd", "kernel", "named"))
        if rng.random() < 0.5:
            return {
                "selection_program": {"program": program},
                "selection_text": {"message|contains": [self.rare(ordinary), self.rare(ordinary)]},
                "filter_user": {"user": rng.choice(("deploy", "backup"))},
                "condition": "all of selection_* and not filter_user",
            }
        return {
            "text_a": {"program": program, "message|contains|all": self._pair(ordinary)},
            "text_b": {"message|startswith": self.rare(ordinary), "user|endswith": _word(rng)},
            "text_c": {"command|endswith": self.rare(ordinary)},
            "condition": "1 of text_*",
        }


def _tuned(rng: Random, vocabulary: Vocabulary, count: int, share: float, alert_share: float) -> list[str]:
    """Rules whose literals together stand in about ``share`` of the sample's lines; see the module's text.

    There are as many as there are literals, but for small ``count``: half of those at most, with several literals each.
    """
    covered: set[int] = set()
    alerting: set[int] = set()
    matching: list[str] = []
    filtered: list[tuple[str, list[str]]] = []
    size = max(1, len(vocabulary.lines))
    rare = [token for token in vocabulary.tunable if len(token[1]) == 1 and token[2] <= max(2, size // 250)]
    rng.shuffle(rare)
    frequent = sorted((token for token in vocabulary.tunable if token[2] > size // 250), key=lambda token: -token[2])
    for token, programs, n in rare + frequent:
        if len(covered) >= share * size or len(matching) + len(filtered) >= 200:
            break
        if share >= FREQUENT and n <= size // 250 and len(alerting) + n > alert_share * size:
            continue  # so many events are not reached by words that are rare
        lines = vocabulary.holding(token)
        if len(lines | covered) > share * size * 1.05 or lines <= covered:
            continue
        if len(lines | alerting) <= alert_share * size:
            alerting |= lines
            matching.append(token)
        else:
            filtered.append((token, programs))
        covered |= lines
    detections: list[dict[str, object]] = []
    for tokens in _dealt(matching, max(1, count // 4)):
        detections.append({"selection": {"message|contains": tokens}, "condition": "selection"})
    for group in _dealt(filtered, max(1, count // 4)):
        tokens = [token for token, _ in group]
        programs = sorted({program for _, programs_of in group for program in programs_of})
        detections.append(
            {
                "selection": {"message|contains": tokens},
                "filter": {"program": programs},
                "condition": "selection and not filter",
            }
        )
    return [rule(rng, f"Tuned {i + 1}", detection, "low") for i, detection in enumerate(detections)]


def _dealt(items: list[_T], hands: int) -> list[list[_T]]:
    """``items`` as even runs, at most ``hands`` of them."""
    hands = min(hands, len(items))
    return [items[i::hands] for i in range(hands)]


def rules(
    seed: int, count: int, sample: Sequence[bytes], *, share: float = 0.01, alert_share: float = 0.001,
    always: float = 0.0,
) -> list[str]:  # fmt: skip
    """``count`` rules as YAML texts, a function of the arguments; ``sample`` are lines of the stream to come."""
    rng = Random(f"rules {seed}")
    vocabulary = _vocabulary(tuple(sample[:SAMPLE]))
    texts = _tuned(rng, vocabulary, count, share, alert_share)[:count] if share else []
    maker = Maker(rng, vocabulary)
    for i in range(count - len(texts)):
        kind = (maker.contains, maker.contains, maker.contains, maker.regex, maker.several)[i % 5]
        if i < always * count:
            kind = maker.without
        texts.append(rule(rng, f"{kind.__name__.capitalize()} {i + 1}", kind(i // 5 % 2 == 0)))
    return texts


def write(folder: Path, texts: Sequence[str]) -> None:
    """One file a rule."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, text in enumerate(texts):
        (folder / f"bench_{i:05}.yml").write_text(text, "utf-8")
