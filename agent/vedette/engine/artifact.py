"""A built rule set as bytes: the plan and its serialized Hyperscan databases.

What ``vedette.rules`` builds in a process of its own, bundles carry and the agent's cache keeps. The databases fit
one exact library version only; under another one they are left aside and compiled again from the plan, and so are
those of the prefilter under decoders of which it holds something else (``Prefilter``).

Bytes: BLAKE2b-128 of the rest; msgpack map ``{"plan", "databases": {name: bytes}, "library", "lookups": {name:
bytes}}``. The digest detects damage, not tampering: load it only from the agent's own folder.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack

from vedette.engine.match import Engine
from vedette.plan.database import LIBRARY
from vedette.plan.plan import Plan

if TYPE_CHECKING:
    from vedette.decode.declared import Declared


class Artifact(NamedTuple):
    """``plan``: ``Plan.to_bytes()``; ``databases``: ``Engine.databases()`` under ``library``."""

    plan: bytes
    databases: Mapping[str, bytes]
    library: str
    lookups: Mapping[str, bytes] = {}
    """Those of the plan's that are in no file."""

    @classmethod
    def of(cls, plan: Plan) -> Artifact:
        """Compiles the databases of ``plan``: seconds for thousands of rules."""
        return cls.without_databases(plan)._replace(databases=Engine(plan).databases())

    @classmethod
    def without_databases(cls, plan: Plan) -> Artifact:
        asked = {name for name, _ in plan.asked}
        lookups = {name: lookup.data for name, lookup in plan.lookups.items() if name in asked and lookup.path is None}
        return cls(plan.to_bytes(), {}, LIBRARY, lookups)

    def read_plan(self) -> Plan:
        """Without lookups. Raises ValueError when it cannot be used."""
        with uncollected():
            return Plan.from_bytes(self.plan)

    def engine(
        self, lookups: Mapping[str, Any] | None = None, *, route: bool = True, formats: Iterable[Declared] = ()
    ) -> Engine:
        """``lookups``: those that rules may ask, by name; ``formats``: declared by others, taken where the plan has
        none of their names. Raises ValueError when the plan or its databases cannot be used, or the plan asks a lookup
        that is not among them."""
        with uncollected():
            plan = Plan.from_bytes(self.plan)
            own = {form.name for form in plan.formats}
            if more := [form for form in formats if form.name not in own]:
                plan = replace(plan, formats=tuple(sorted((*plan.formats, *more), key=lambda form: form.name)))
            plan = plan.fitted().with_lookups(lookups or {})
            engine = Engine(plan, self.databases if self.library == LIBRARY else None, route=route)
            engine.evaluator.compile()
            return engine

    def to_bytes(self) -> bytes:
        packed = msgpack.packb({**self._asdict(), "databases": dict(self.databases), "lookups": dict(self.lookups)})
        return _digest(packed) + bytes(packed)

    @classmethod
    def from_bytes(cls, data: bytes) -> Artifact:
        """Raises ValueError when ``data`` is no artifact."""
        try:
            rest = memoryview(data)[_DIGEST_BYTES:]  # 20 MB for 3,000 rules, not to be copied
            if _digest(rest) != data[:_DIGEST_BYTES]:
                raise ValueError("it is damaged")
            fields = msgpack.unpackb(rest)
            return cls(fields["plan"], fields["databases"], fields["library"], fields["lookups"])
        except (msgpack.UnpackException, ValueError, TypeError, KeyError) as error:
            raise ValueError(f"not a built rule set: {error}") from error


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the garbage collector, whose runs take longer than making what they look at in vain: all of it stays."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


_DIGEST_BYTES = 16


def _digest(data: bytes | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
