"""Local response at work: what alerts ask for is done in the firewall, once, and reported.

It takes alerts as a sink does (``delivery/forward.py``): from the outbox, from a place of its own, beside evaluation.
An alert that asks for a block (``response/decide.py``) is answered TAKEN when

1. the firewall has the address, or it is decided that it does not get it;
2. a line in ``fleet/audit.jsonl`` says so;
3. an alert says so (rule ``vedette.response``, ``parent_id`` the alert that asked) and is committed;
4. the record (``response/record.py``) has the block.

Killed in between, all of it is done again: the firewall's element is the same, the alert has the same id, the line may
be there twice. While the firewall takes nothing, the alerts wait; a block ends ``ttl`` after its alert was detected,
also when it came late.

In order of strength: what is allowed, what an operator has undone, the time, ``max_blocked``. An event older than
``ttl`` blocks nothing: it was read late, from a file or a backlog. What an attacker can repeat costs little: an address
that is blocked is blocked again only when that adds a tenth of ``ttl`` or more; a refusal is reported once an address
in ``ttl``, and of all ``MAX_REFUSED``; the others are counted.

Every ``POLL_SECONDS`` the firewall is looked at: a table that somebody has changed or deleted is put back whole, and
what is newly allowed is let go. Threads wait for nft, the disk and the resolver; the loop does not.
"""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

import structlog

from vedette.bundle.manifest import rfc3339
from vedette.config.settings import Config, ResponseSettings
from vedette.delivery.envelope import alert_id, received_date
from vedette.fleet.audit import Audit
from vedette.inputs.settings import KafkaInput, MqttInput
from vedette.model.counters import Log
from vedette.model.event import Alert, Entity, LogSource, RawRef
from vedette.response.allowed import of_host, of_names
from vedette.response.decide import ADDRESS, FLAG, RULE, TEXT, Address, Allowed, Network, address_of, configured
from vedette.response.nft import NFT, Nft
from vedette.response.record import Block, Record
from vedette.runtime.pipeline.checkpointer import Checkpointer
from vedette.runtime.pipeline.context import RunContext
from vedette.sinks.base import Answer, Outgoing, Receiver, SinkSettings, Verdict, fits, secret
from vedette.sinks.settings import PAGERDUTY, HttpSink, KafkaSink, MqttSink, SyslogSink, WebhookSink

log = structlog.get_logger()

NAME = "response:nft"
"""Of its place among those of sinks, which cannot be called so."""
DRY = "dry run"
"""By whom an address is blocked that is not."""
POLL_SECONDS = 5.0
"""Between two looks at the firewall and at what this host allows."""
COMMIT_POLL = 0.01
RESOLVE_SECONDS = 60.0
RENEW = 10
"""A block that is renewed lasts longer by at least this part of ``ttl``."""
MAX_REFUSED = 200
"""Refusals that are reported in ``ttl``."""


class Act(NamedTuple):
    """What comes of one alert, or of an operator's command."""

    action: str
    """block, renew, refuse, "dry run", undo, flush, release."""
    address: str = ""
    until: int = 0
    reason: str = ""
    row: Mapping[str, Any] = {}
    """Of the alert that asked; empty: an operator did, or the agent itself."""

    @property
    def by(self) -> str:
        return "alert" if self.row else "agent" if self.action in ("release", "withdraw") else "operator"

    @property
    def text(self) -> str:
        match self.action:
            case "block" | "renew":
                return f"blocked {self.address} until {rfc3339(self.until)}"
            case "dry run":
                return f"would have blocked {self.address} until {rfc3339(self.until)}"
            case _:
                return f"not blocked {self.address}: {self.reason}"


@dataclass(frozen=True, slots=True)
class ResponseSink(SinkSettings):
    """How ``Sinks`` has it: it is opened, changed and closed as a sink is."""

    settings: ResponseSettings = field(default_factory=ResponseSettings)
    peers: tuple[str, ...] = ()
    """Hosts that the configuration names."""
    opened: Callable[[ResponseSink], Receiver] | None = field(default=None, compare=False)

    type: ClassVar[str] = "response"

    @property
    def to(self) -> str:
        return "nowhere (dry run)" if self.settings.dry_run else f"nftables, table inet {self.settings.table}"

    def wants(self, row: Mapping[str, Any]) -> bool:
        """An alert that asks for a block, under the settings of today, too."""
        if FLAG not in row["flags"] or ADDRESS not in row["fields"]:
            return False
        return any(fits(block, row["level"], row["rule_id"], row["tags"]) for block in self.settings.block)

    def open(self, version: str) -> Receiver:
        assert self.opened is not None
        return self.opened(self)


def sink_of(config: Config, opened: Callable[[ResponseSink], Receiver]) -> ResponseSink:
    hosts = {urlsplit(url if "://" in url else f"//{url}").hostname for url in _peers(config)}
    return ResponseSink(NAME, settings=config.response, peers=tuple(sorted(filter(None, hosts))), opened=opened)


def _peers(config: Config) -> Iterator[str]:
    """Every address of another host in the configuration, as URL or ``HOST:PORT``; some are empty."""
    yield from (config.uplink.broker.url, config.enrolment.url)
    for source in config.input:
        match source:
            case MqttInput():
                yield source.broker.url
            case KafkaInput():
                yield from source.brokers
    for sink in config.sink:
        match sink:
            case KafkaSink():
                yield from sink.brokers
            case MqttSink():
                yield sink.broker.url
            case SyslogSink():
                yield sink.address
            case HttpSink():
                yield from (sink.url, sink.proxy)
                if isinstance(sink, WebhookSink):
                    yield PAGERDUTY if sink.template == "pagerduty" else ""
                    with suppress(OSError):
                        yield secret(sink.url_file) if sink.url_file is not None else ""
    if (options := config.archive.options_file) is not None:
        with suppress(OSError, ValueError):  # the archive says what is wrong with it
            yield str(tomllib.loads(options.read_text("utf-8")).get("endpoint", ""))


class Response:
    """See the module's text. One at a time; ``close`` leaves the blocks to the kernel, ``withdraw`` takes them away."""

    batch = 50

    def __init__(self, of: ResponseSink, context: RunContext, checkpointer: Checkpointer) -> None:
        self.settings, self._peers = of.settings, of.peers
        self._context, self._checkpointer = context, checkpointer
        agent = context.config.agent
        self._agent = agent
        self._record = Record(agent.data_dir / "response" / "blocked.json")
        self._audit = Audit(agent.fleet_dir / "audit.jsonl", context.clock)
        self._nft = Nft(NFT, self.settings.table, self.settings.max_blocked)
        self._allowed = Allowed(configured(self.settings.allow))
        self._resolved: list[tuple[Network, str]] = []
        self._names_known = asyncio.Event()
        self._shape: str | None = None
        """Of our table when it was last in order; None: it has to be made."""
        self._refused: dict[tuple[str, str], int] = {}
        """Until when a refusal of an address for a reason is not reported again."""
        self._turn = asyncio.Lock()
        self._restored = self._withdrawn = False
        self.problem = ""
        """Why the firewall is not as it should be; empty: it is."""
        self._tasks = {asyncio.create_task(self._watch()), asyncio.create_task(self._resolve())}

    def _by(self, who: str) -> str:
        return DRY if self.settings.dry_run else who

    @property
    def _ttl(self) -> int:
        """Microseconds."""
        return round(self.settings.ttl * 1e6)

    def state(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "dry_run": self.settings.dry_run,
            "blocked": len(self._record.left(self._context.clock())),
            "max_blocked": self.settings.max_blocked,
            "problem": self.problem or None,
        }

    # --- alerts

    async def deliver(self, alerts: Sequence[Outgoing]) -> list[Answer]:
        async with self._turn:
            if self._withdrawn:  # another one, if any, goes on here
                return [Answer(Verdict.LATER, "local response was switched off")] * len(alerts)
            try:
                if not self._restored:
                    await self._restore()
                await self._look()
                now = self._context.clock()
                acts, refused = self._decide(alerts, now)
                await self._do(acts, now)
            except (OSError, ValueError) as error:
                self._fail(str(error))
                return [Answer(Verdict.LATER, str(error))] * len(alerts)
            self._context.counters.totals["responses_refused"] += refused
            return [Answer(Verdict.TAKEN)] * len(alerts)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def withdraw(self) -> None:
        """Let all go: this host is not to block any more, or not by this table. Blocks that could not be let go end by
        themselves."""
        async with self._turn:
            self._withdrawn = True
            with suppress(OSError, ValueError):
                await asyncio.to_thread(self._nft.run, self._nft.gone())
                self._record.blocked.clear()
                await asyncio.to_thread(self._note, [Act("withdraw", reason="the configuration was changed")])
                await self._keep()

    def _decide(self, alerts: Sequence[Outgoing], now: int) -> tuple[list[Act], int]:
        """What there is to do and to report, and how many blocks are refused, reported or not."""
        acts, refused, blocked = list[Act](), 0, dict(self._record.left(now))
        self._refused = {key: until for key, until in self._refused.items() if until > now}
        for alert in alerts:
            row = alert.row
            try:
                address = address_of(row["fields"][ADDRESS])
            except ValueError:
                continue
            name, until = str(address), min(row["detected_at"], now) + self._ttl  # the clock may have been ahead
            left, others = blocked.get(name, 0) * 1000, len(blocked) - (name in blocked)
            reason = self._refusal(address, row["detected_at"], until, others, now)
            if not reason and row["detected_at"] - row["event_time"] > self._ttl:
                reason = f"its event is older than response.ttl ({self.settings.ttl:g} s)"
            if reason:
                refused += 1
                if (name, reason) not in self._refused and len(self._refused) < MAX_REFUSED:
                    self._refused[name, reason] = now + self._ttl
                    acts.append(Act("refuse", name, reason=reason, row=row))
            elif until - now - left >= self._ttl // RENEW:
                done = "renew" if name in blocked else "block"
                acts.append(Act(DRY if self.settings.dry_run else done, name, until, row=row))
                blocked[name] = (until - now) // 1000
        return acts, refused

    def _refusal(self, address: Address, detected_at: int, until: int, others: int, now: int) -> str:
        """Why ``address`` is not blocked; empty: it is."""
        if why := self._allowed.why(address):
            return f"it is allowed ({why})"
        if why := self._record.stale(str(address), detected_at):
            return why
        if until <= now:
            return f"response.ttl ({self.settings.ttl:g} s) had passed since the alert was detected"
        if others >= self.settings.max_blocked:
            return f"response.max_blocked ({self.settings.max_blocked}) are blocked already"
        return ""

    async def _do(self, acts: Sequence[Act], now: int) -> None:
        """In the order of the module's text. Raises OSError and ValueError; the record is then as before."""
        new = {
            act.address: Block(now, act.until, self._by("alert"), act.row["alert_id"], act.row["rule_id"])
            for act in acts
            if act.until
        }
        if not acts:
            return
        await self._apply(new, now)
        await asyncio.to_thread(self._note, acts)
        await self._commit(acts, now)
        self._record.blocked |= new
        if new:
            await self._keep()
        self._context.counters.totals["addresses_blocked"] += len(new)
        for act in acts:
            log.warning(
                Log.RESPONSE, action=act.action, address=act.address, alert=act.row["alert_id"],
                rule=act.row["rule_id"], reason=act.reason or None,
            )  # fmt: skip

    async def _apply(self, new: Mapping[str, Block], now: int) -> None:
        """These too in the firewall. Where that cannot be added to, it is made again: it may have been deleted, or be
        full of what is over. Raises OSError."""
        if self.settings.dry_run:
            return
        if new and self._shape:
            left = {address: (block.until - now) // 1000 for address, block in new.items()}
            try:
                await asyncio.to_thread(self._nft.run, self._nft.added(left))
                self._recovered()
                return
            except OSError:
                pass
        if new or not self._shape:
            await self._replace({**self._record.blocked, **new}, now)

    async def _replace(self, blocked: Mapping[str, Block], now: int) -> None:
        left = {address: (block.until - now) // 1000 for address, block in blocked.items() if block.until > now}
        script = self._nft.replace(left, self._allowed.networks)
        self._shape = None
        await asyncio.to_thread(self._nft.run, script)
        self._shape = await asyncio.to_thread(self._nft.shape)
        self._recovered()

    def _note(self, acts: Sequence[Act]) -> None:
        """A line in the audit record for each. Blocks. Raises OSError and ValueError."""
        self._audit.path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        for act in acts:
            facts: dict[str, Any] = {"action": act.action, "address": act.address}
            if act.until:
                facts["until"] = rfc3339(act.until)
            if act.reason:
                facts["reason"] = act.reason
            facts |= {name: act.row[name] for name in ("alert_id", "rule_id") if act.row}
            self._audit.append("response", by=act.by, **facts)

    async def _commit(self, acts: Sequence[Act], now: int) -> None:
        """An alert for each, in the outbox when this returns."""
        await self._checkpointer.steady()  # else alerts that are being made have taken their numbers
        self._checkpointer.take(self._report(act, now) for act in acts)
        newest = self._context.restart.next_seq - 1
        self._checkpointer.due.set()  # not ``commit``: one that is cancelled is the last
        while self._context.outbox.newest_seq < newest:
            await asyncio.sleep(COMMIT_POLL)

    def _report(self, act: Act, now: int) -> Alert:
        """The alert that says what came of ``act.row``."""
        row, agent, ref = act.row, self._agent, act.row["raw_ref"]
        key = f"{row['alert_id']}\0{act.action}"
        return Alert(
            alert_id=alert_id(agent.id, ref["log_id"], RULE, ref["offset"], key), parent_id=row["alert_id"],
            rule_id=RULE, rule_title="Local response", rule_digest="", level="informational", tags=(RULE,),
            agent_id=agent.id, site=agent.site, fleet=agent.fleet, host=row["host"], event_time=row["event_time"],
            detected_at=now, received_date=received_date(now), source=row["source"], logsource=LogSource(),
            fields={TEXT: act.text, ADDRESS: act.address, "response.rule_id": row["rule_id"]},
            entities=(Entity("ip", act.address),), raw=act.text,
            raw_ref=RawRef(ref["log_id"], ref["offset"], ref["length"]), seq=self._context.restart.take_seq(),
        )  # fmt: skip

    # --- the host

    async def _look(self) -> None:
        """What is allowed as of now; of names what they meant when they were last resolved, which is waited for once.
        Raises OSError for what cannot be read."""
        await self._names_known.wait()
        sessions = self.settings.allow_sessions
        host = await asyncio.to_thread(lambda: list(of_host(sessions=sessions)))
        self._allowed = Allowed([*configured(self.settings.allow), *host, *self._resolved])

    async def _resolve(self) -> None:
        """Resolve the names of the configuration every RESOLVE_SECONDS, until cancelled; silent servers hold up no
        block."""
        while True:
            self._resolved = await asyncio.to_thread(lambda: list(of_names(self._peers, self._resolved)))
            self._names_known.set()
            await asyncio.sleep(RESOLVE_SECONDS)

    async def _restore(self) -> None:
        """The record as it is on disk; of a dry run only in one. Raises OSError."""
        try:
            await asyncio.to_thread(self._record.read)
        except ValueError as error:
            log.error(Log.RESPONSE_FAILING, reason=str(error), action="no address is blocked of earlier alerts")
        dry, blocked = self.settings.dry_run, self._record.blocked
        if dry and any(block.by != DRY for block in blocked.values()):  # what is there of live work goes, if it may
            with suppress(OSError):
                await asyncio.to_thread(self._nft.run, self._nft.gone())
        self._record.blocked = {name: block for name, block in blocked.items() if (block.by == DRY) == dry}
        self._record.expire(self._context.clock(), self._ttl)
        self._restored = True

    async def _watch(self) -> None:
        """Put the firewall in order, then keep it so, until cancelled."""
        while not self._withdrawn:
            async with self._turn:
                try:
                    if not self._withdrawn:
                        await self._tend()
                except (OSError, ValueError) as error:
                    self._fail(str(error))
                except Exception as error:  # a defect here must not end the agent
                    self._fail(f"{type(error).__name__}: {error}; please report it")
            await asyncio.sleep(POLL_SECONDS)

    async def _tend(self) -> None:
        if not self._restored:
            await self._restore()
        before = self._allowed.networks
        await self._look()
        now = self._context.clock()
        over = self._record.expire(now, self._ttl)
        freed = [name for name in self._record.blocked if self._allowed.why(address_of(name))]
        if freed:
            why = {name: self._allowed.why(address_of(name)) for name in freed}
            await asyncio.to_thread(self._note, [Act("release", name, reason=why[name]) for name in freed])
            for name in freed:
                del self._record.blocked[name]
        if over or freed:
            await self._keep()
        if self.settings.dry_run:
            self._recovered()
            return
        shape = await asyncio.to_thread(self._nft.shape)
        if self._shape is not None and shape != self._shape:
            log.warning(
                Log.RESPONSE_RESTORED, table=self.settings.table,
                reason="the table was deleted or changed by another program", action="put back with all blocks",
            )  # fmt: skip
        if freed or shape != self._shape or self._allowed.networks.keys() != before.keys():
            await self._replace(self._record.blocked, now)
        self._recovered()

    async def _keep(self) -> None:
        await asyncio.to_thread(self._record.write)

    def _fail(self, reason: str) -> None:
        if reason != self.problem:
            log.error(Log.RESPONSE_FAILING, reason=reason, action="addresses are not blocked; retrying")
        self.problem = reason

    def _recovered(self) -> None:
        self.problem = ""

    # --- the operator

    async def command(self, action: str, address: str = "", ttl: float = 0.0, reason: str = "") -> Any:
        """What ``vedette response`` asks for. Raises ValueError for what is refused, OSError of nft and the disk."""
        async with self._turn:
            if not self._restored:
                await self._restore()
            try:
                await self._look()
            except OSError as error:
                if action in ("block", "test"):
                    raise
                self._fail(str(error))
            now = self._context.clock()
            match action:
                case "list":
                    allowed = [{"network": str(net), "reason": why} for net, why in self._allowed.networks.items()]
                    return {**self.state(), "addresses": self._record.rows(now), "allowed": allowed}
                case "block":
                    return await self._block(address_of(address), ttl or self.settings.ttl, reason, now)
                case "undo":
                    return await self._undo(str(address_of(address)), now)
                case "flush":
                    return {"undone": await self._flush("flushed by an operator")}
                case "test":
                    return await self._test(address, now)
        raise ValueError("expects list, block, undo, flush or test")

    async def _block(self, address: Address, seconds: float, reason: str, now: int) -> Any:
        name, until = str(address), now + round(seconds * 1e6)
        others = len(self._record.left(now).keys() - {name})
        if why := self._refusal(address, until, until, others, now):
            raise ValueError(f"{name} is not blocked: {why}")
        new = {name: Block(now, until, self._by("operator"), "", reason)}
        await self._apply(new, now)
        act = Act(DRY if self.settings.dry_run else "block", name, until, reason)
        await asyncio.to_thread(self._note, [act])
        self._record.blocked |= new
        await self._keep()
        self._context.counters.totals["addresses_blocked"] += 1
        return {"text": act.text}

    async def _undo(self, name: str, now: int) -> Any:
        """The record comes first: what it says is what a start makes of the firewall."""
        if name not in self._record.left(now):
            raise ValueError(f"{name} is not blocked")
        await asyncio.to_thread(self._note, [Act("undo", name)])
        self._record.undone.pop(name, None)  # the newest ones are kept
        self._record.undone[name] = now
        del self._record.blocked[name]
        await self._keep()
        if self.settings.live:
            try:
                await asyncio.to_thread(self._nft.run, self._nft.removed([name]))
            except OSError:
                await self._replace(self._record.blocked, now)
        return {"text": f"{name} is not blocked any more; alerts detected before do not block it again"}

    async def _flush(self, reason: str) -> int:
        now = self._context.clock()
        undone = len(self._record.left(now))
        await asyncio.to_thread(self._note, [Act("flush", reason=reason)])
        self._record.blocked.clear()
        self._record.undone.clear()
        self._record.flushed = now
        await self._keep()
        if self.settings.live:
            await self._replace({}, now)
        return undone

    async def _test(self, address: str, now: int) -> Any:
        """Whether it could block, with nothing changed."""
        if not self.settings.dry_run:
            await asyncio.to_thread(self._nft.run, self._nft.replace({}, self._allowed.networks), check=True)
        if not address:
            return {"text": f"{self.settings.table}: nft takes the table"}
        parsed = address_of(address)
        others = len(self._record.left(now).keys() - {str(parsed)})
        if why := self._refusal(parsed, now, now + self._ttl, others, now):
            raise ValueError(f"{parsed} would not be blocked: {why}")
        return {"text": f"{parsed} would be blocked for {self.settings.ttl:g} s"}
