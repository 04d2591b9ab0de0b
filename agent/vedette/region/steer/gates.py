"""The gates of a ring: what must not happen to agents that have a change. One table; a gate is a row, a
function and a limit.

``[gates]`` in ``fleet.toml`` sets the limits (``LIMITS``); ``false`` switches a gate off. Each gate compares one agent
with itself before the change (``Case``) and says what is wrong and by how much the limit is exceeded, or nothing.

``verdict`` decides for a ring. Of its agents it tolerates as many as SERIOUS of them for a serious gate, ``share`` for
the others (figures that a single host may change by itself), in both cases beyond twice what happens meanwhile to
agents that do not have the change: so what happens to everybody fails no ring, and one crash of five agents does. Of a
gate that is not serious, an agent that exceeds the limit EXTREME times counts as for a serious one: a flood at one
canary is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from vedette.model.times import seconds as parse_seconds
from vedette.region.steer.vitals import Rates, Vitals

SERIOUS = 0.01
EXTREME = 10.0
NOTICEABLE_CPU = 0.05
"""Of a core: below that CPU time per event is not compared."""
NOTICEABLE_EVENTS = 1000
NOTICEABLE_MEMORY = 64 << 20

LIMITS: Mapping[str, float | bool] = {
    "crashes": 0,
    "restarts": 3,
    "refused": True,
    "quarantined": 0,
    "undecided": 10,
    "poisoned": 0,
    "cpu": 2.0,
    "memory": 1.5,
    "alerts": 3.0,
    "alerts_floor": 10,
    "loss": 0,
    "lag": 60,
    "silence": 300,
    "share": 0.2,
    "taken": 0.95,
    "take_within": 600,
    "away": 900,
    "baseline": 600,
}
"""Defaults. ``crashes``, ``quarantined``, ``restarts``: more than so many of an agent since the ring began, of the last
those that were no crash (a release takes one, a reboot, too); ``undecided``,
``poisoned``, ``loss``: more such events than so many and than twice as many as before; ``cpu`` (per event), ``memory``,
``alerts`` (a minute, by rule): more than so many times as before, alerts above ``alerts_floor`` a minute; ``lag``:
seconds more than before; ``silence``: seconds without a heartbeat. ``share``: of a ring's agents, tolerated.

When a ring goes on: ``taken``: the share of its agents that must have the change before the soak begins; after
``take_within`` seconds an agent that reports why it does not take it has refused it; those ``away`` for so many
seconds are not waited for; ``baseline``: for so many seconds an agent is watched before it is given anything."""
DURATIONS = ("lag", "silence", "take_within", "away", "baseline")
SHARES = ("share", "taken")


class Case(NamedTuple):
    """One agent: ``before`` is how it was, ``mark`` its figures when the ring began, ``now`` and ``after`` how it is.
    ``lag``: the lower of the last two. ``refusal``: why it does not take the change. ``silent``: seconds."""

    now: Vitals | None
    mark: Vitals | None = None
    before: Rates | None = None
    after: Rates | None = None
    lag: float = 0.0
    refusal: str = ""
    silent: float = 0.0


class Finding(NamedTuple):
    """What a gate found at one agent; ``times``: how far the limit is exceeded."""

    gate: str
    reason: str
    times: float = 1.0


Check = Callable[[Case, Mapping[str, float]], tuple[str, float] | None]


class Gate(NamedTuple):
    name: str
    serious: bool
    check: Check


def _crashes(case: Case, limits: Mapping[str, float]) -> tuple[str, float] | None:
    n = case.now.crashes - case.mark.crashes if case.now and case.mark else 0
    return (f"{n} crashes", 1.0) if n > limits["crashes"] else None


def _restarts(case: Case, limits: Mapping[str, float]) -> tuple[str, float] | None:
    """A loop of orderly stops: who ends by itself, and says so, has not crashed."""
    if not (case.now and case.mark) or min(case.now.starts, case.mark.starts) < 0:
        return None
    n = case.now.starts - case.mark.starts - max(0, case.now.crashes - case.mark.crashes)
    return (f"{n} restarts", 1.0) if n > limits["restarts"] else None


def _refused(case: Case, limits: Mapping[str, float]) -> tuple[str, float] | None:
    return (case.refusal, 1.0) if case.refusal else None


def _quarantined(case: Case, limits: Mapping[str, float]) -> tuple[str, float] | None:
    n = case.now.quarantined - case.mark.quarantined if case.now and case.mark else 0
    return (f"{n} more rules in quarantine", 1.0) if n > limits["quarantined"] else None


def _more(name: str, what: str) -> Check:
    """Of events that are counted: more than the limit, and than twice as many as before."""

    def check(case: Case, limits: Mapping[str, float]) -> tuple[str, float] | None:
        if not (case.now and case.mark):
            return None
        field = "lost" if name == "loss" else name
        n = getattr(case.now, field) - getattr(case.mark, field)
        usual = getattr(case.before, field) if case.before else 0.0
        most = max(limits[name], 2 * usual * max(0.0, (case.now.time - case.mark.time) / 1e6))
        return (f"{n} {what}, at most {most:.0f} expected", n / max(most, 1.0)) if n > most else None

    return check


def _cpu(case: Case, limits: Mapping[str, float]) -> tuple[str, float] | None:
    before, after = case.before, case.after
    if not (before and after and before.cpu_per_event) or after.events < NOTICEABLE_EVENTS:
        return None
    most = before.cpu_per_event * limits["cpu"]
    if after.cpu_per_event <= most or after.cpu < NOTICEABLE_CPU:
        return None
    return f"{after.cpu_per_event:.1f} µs an event, before {before.cpu_per_event:.1f}", after.cpu_per_event / most


def _memory(case: Case, limits: Mapping[str, float]) -> tuple[str, float] | None:
    if not (case.now and case.mark):
        return None
    most = max(case.mark.memory * limits["memory"], case.mark.memory + NOTICEABLE_MEMORY)
    if case.now.memory <= most:
        return None
    used, usual = case.now.memory / (1 << 20), case.mark.memory / (1 << 20)
    return f"{used:.0f} MiB, before {usual:.0f}", case.now.memory / most


def _alerts(case: Case, limits: Mapping[str, float]) -> tuple[str, float] | None:
    """The rule that exceeds its limit the most."""
    if case.after is None:
        return None
    usual = case.before.alerts if case.before else {}
    rest = case.before.rest if case.before else 0.0
    worst: tuple[str, float] | None = None
    for rule, rate in case.after.alerts.items():
        before = usual.get(rule, rest)
        most = max(limits["alerts_floor"], before * limits["alerts"])
        if rate > most and (worst is None or rate / most > worst[1]):
            worst = f"rule {rule}: {rate:.0f} alerts a minute, before {before:.1f}", rate / most
    return worst


def _lag(case: Case, limits: Mapping[str, float]) -> tuple[str, float] | None:
    usual = case.mark.lag if case.mark else 0.0
    return (f"{case.lag:.0f} s behind, before {usual:.0f} s", 1.0) if case.lag > usual + limits["lag"] else None


def _silence(case: Case, limits: Mapping[str, float]) -> tuple[str, float] | None:
    return (f"not heard for {case.silent:.0f} s", 1.0) if case.silent > limits["silence"] else None


GATES = (
    Gate("crashes", True, _crashes),
    Gate("restarts", True, _restarts),
    Gate("refused", True, _refused),
    Gate("quarantined", True, _quarantined),
    Gate("undecided", True, _more("undecided", "undecided events")),
    Gate("poisoned", True, _more("poisoned", "events that made something fail")),
    Gate("cpu", False, _cpu),
    Gate("memory", False, _memory),
    Gate("alerts", False, _alerts),
    Gate("loss", True, _more("loss", "events or alerts lost")),
    Gate("lag", False, _lag),
    Gate("silence", True, _silence),
)
BY_NAME = {gate.name: gate for gate in GATES}


def read_limits(table: Mapping[str, object]) -> dict[str, float | bool]:
    """The limits that a table sets: durations may be texts ("5m"). Raises ValueError with every mistake."""
    read: dict[str, float | bool] = {}
    mistakes = []
    for name, value in table.items():
        if name not in LIMITS:
            mistakes.append(f"{name}: unknown; known: {', '.join(LIMITS)}")
        elif value is False or (value is True and name == "refused"):
            if name in BY_NAME:
                read[name] = value
            else:
                mistakes.append(f"{name}: expects a number, not {value!r}")
        else:
            try:
                number = _number(name, value)
            except ValueError as error:
                mistakes.append(f"{name}: {error}")
            else:
                read[name] = number
    if mistakes:
        raise ValueError("\n".join(mistakes))
    return read


def _number(name: str, value: object) -> float:
    if isinstance(value, str) and name in DURATIONS:
        return parse_seconds(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or name == "refused":
        raise ValueError(f"expects {'true or false' if name == 'refused' else 'a number'}, not {value!r}")
    if value < 0 or (name in SHARES and value > 1):
        raise ValueError(f"expects {'0 to 1' if name in SHARES else '0 or more'}, not {value!r}")
    return float(value)


class Limits(NamedTuple):
    """What is in force: the limits, and the gates that are on."""

    values: Mapping[str, float]
    gates: tuple[Gate, ...]

    def findings(self, case: Case) -> tuple[Finding, ...]:
        findings = []
        for gate in self.gates:
            if (wrong := gate.check(case, self.values)) is not None:
                findings.append(Finding(gate.name, *wrong))
        return tuple(findings)


def limits(signed: Mapping[str, float | bool]) -> Limits:
    """Of a desired document; what it does not name is as by default, what nobody knows is passed over."""
    every = {**LIMITS, **{name: value for name, value in signed.items() if name in LIMITS}}
    on = tuple(gate for gate in GATES if every[gate.name] is not False)
    return Limits({name: float(value) for name, value in every.items()}, on)


class Tally(NamedTuple):
    """How many agents a gate found something at: of those with the change and of those without it."""

    inside: int
    outside: int
    reasons: tuple[str, ...]


def tally(
    inside: Mapping[str, Sequence[Finding]], outside: Mapping[str, Sequence[Finding]], gate: Gate, *, extreme: bool
) -> Tally:
    """``extreme``: only findings EXTREME times over the limit."""

    def named(agents: Mapping[str, Sequence[Finding]]) -> list[str]:
        return [
            f"{agent}: {finding.reason}"
            for agent, findings in agents.items()
            for finding in findings
            if finding.gate == gate.name and (not extreme or finding.times >= EXTREME)
        ]

    bad = named(inside)
    return Tally(len(bad), len(named(outside)), tuple(bad[:5]))


def verdict(
    limits: Limits, inside: Mapping[str, Sequence[Finding]], having: int, outside: Mapping[str, Sequence[Finding]],
    others: int,
) -> list[str]:  # fmt: skip
    """Why the ring has failed: a line for each gate, or none. ``inside``, ``outside``: findings by agent, of those that
    have any; ``having``, ``others``: how many agents there are of each."""
    failed = []
    for gate in limits.gates if inside else ():
        for extreme in (False,) if gate.serious else (False, True):
            share = SERIOUS if gate.serious or extreme else limits.values["share"]
            counted = tally(inside, outside, gate, extreme=extreme)
            usual = counted.outside / others if others else 0.0
            if counted.inside > (share + 2 * usual) * having:
                failed.append(f"{gate.name}: {counted.inside} of {having} agents: {'; '.join(counted.reasons)}"[:1000])
                break
    return failed
