"""Every setting with its default; ``packaging/vedette.toml`` documents them, and a test holds the two together."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from pathlib import Path
from typing import ClassVar, Literal

from vedette.inputs.settings import InputSettings
from vedette.model.settings import Address, Fsync, Labels, Name, Seconds, Share, Size
from vedette.model.times import seconds
from vedette.mqtt.settings import MqttSettings
from vedette.sinks.base import SinkSettings

RECIPIENT = re.compile(r"age1[02-9ac-hj-np-z]{58}")
"""A public key of age for X25519 (age-encryption.org/v1)."""
DEFAULT_SET = "default"
"""The rule set of ``[rules]`` and ``[bundles]``."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """Who this agent is and where its data lies."""

    id: Name = ""
    site: Name = "default"
    fleet: Name = "default"
    data_dir: Path = Path("/var/lib/vedette")
    max_memory: Size = 768 << 20
    stop_within: Seconds = 10.0
    allow_commands: tuple[str, ...] = ()
    """Programs that sinks may run; no overlay changes it."""
    redact_key: Path | None = None
    """None: a key of this host's own, which is made when it is first needed."""

    @property
    def control_socket(self) -> Path:
        return self.data_dir / "control.sock"

    @property
    def raw_dir(self) -> Path:
        return self.data_dir / "raw"

    @property
    def archive_dir(self) -> Path:
        return self.data_dir / "archive"

    @property
    def store_dir(self) -> Path:
        return self.data_dir / "store"

    @property
    def redact_key_file(self) -> Path:
        return self.redact_key or self.data_dir / "redact.key"

    @property
    def shown_file(self) -> Path:
        return self.data_dir / "shown"

    @property
    def lives_file(self) -> Path:
        return self.data_dir / "lives"

    def bundle_dir(self, ruleset: str) -> Path:
        return self._of("bundles", ruleset)

    def cache_dir(self, ruleset: str) -> Path:
        return self._of("cache", ruleset)

    def _of(self, what: str, ruleset: str) -> Path:
        return self.data_dir / what if ruleset == DEFAULT_SET else self.data_dir / "rulesets" / ruleset / what

    @property
    def lookup_dir(self) -> Path:
        return self.data_dir / "lookups"

    @property
    def identity_dir(self) -> Path:
        return self.data_dir / "identity"

    @property
    def fleet_dir(self) -> Path:
        return self.data_dir / "fleet"

    @property
    def quarantine_dir(self) -> Path:
        return self.data_dir / "quarantine"


UNAUTHENTICATED = "unauthenticated"
"""``UplinkSettings.receipts``: anybody at the broker can send some."""
MAX_KEYS = 16
"""In ``uplink.receipt_keys``: each may have to be tried for each receipt."""


@dataclass(frozen=True, slots=True)
class RawLogSettings:
    """The local log of everything received."""

    max_bytes: Size = 10 << 30
    max_age: Seconds = 30 * 86400.0
    fsync: Fsync = "interval:200ms"
    segment_bytes: ClassVar[int] = 64 << 20
    """Of a segment before it is sealed; no setting."""

    @property
    def fsync_interval(self) -> float:
        """Longest time, in seconds, for which what came in may not be on disk; 0: as short as can be; infinite: until
        something must be."""
        _, _, interval = self.fsync.partition(":")
        return seconds(interval) if interval else 0.0 if self.fsync == "batch" else math.inf


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """Where sealed segments of the raw log go before they leave this host; an empty ``url``: nowhere."""

    url: str = ""
    """``s3://``, ``az://`` or ``gs://`` BUCKET/PREFIX, or the path of a folder that is mounted."""
    options_file: Path | None = None
    """Of the store: endpoint, region, keys."""
    recipient: str = ""
    """The owner's public key (age), to which segments are encrypted."""
    after: Seconds = 0.0
    max_rate: Size = 0
    """Bytes a second; 0: no bound."""
    required: bool = True
    """Whether a segment stays on this host until its copy is verified, even over the raw log's budget."""

    def mistakes(self) -> Iterator[str]:
        """What is wrong, as ``.key: why``."""
        scheme, _, rest = self.url.partition("://")
        if self.url and not (self.url.startswith("/") or (scheme in ("s3", "az", "gs") and rest.strip("/"))):
            yield '.url: expects "s3://", "az://" or "gs://" with a bucket, or the absolute path of a folder'
        if "@" in rest or "?" in rest:
            yield ".url: keys and options do not belong into it, but into options_file"
        if self.recipient and not RECIPIENT.fullmatch(self.recipient):
            yield ".recipient: expects a public key of age (age1…), as age-keygen prints it"
        if not self.url and (self.recipient or self.options_file is not None):
            yield ".url: missing"


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """Rule directories (need the extra ``vedette[rules]``); empty: run the installed bundle."""

    paths: tuple[Path, ...] = ()
    pipelines: tuple[Path, ...] = ()
    lookups: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class StateSettings:
    """What evaluation keeps between events: correlations."""

    max_bytes: Size = 64 << 20
    max_lateness: Seconds = 30.0
    settle: bool = False


@dataclass(frozen=True, slots=True)
class FunctionSettings:
    """Functions in Python that rules bring along: whether they run, and the bounds of their processes."""

    allow: bool = False
    max_seconds: Seconds = 0.1
    max_memory: Size = 256 << 20


@dataclass(frozen=True, slots=True)
class SuppressSettings:
    """Alerts of these rules (none named: of every rule without a suppression of its own) about one entity."""

    for_: Seconds
    rules: tuple[str, ...] = ()
    by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BundleSettings:
    """Signed rule sets: a local file, or what the region publishes on a channel."""

    file: Path | None = None
    channel: Name = "stable"
    trusted_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RulesetSettings:
    """One more rule set, beside that of ``[rules]`` and ``[bundles]``: from folders, a file, or the region."""

    name: Name
    paths: tuple[Path, ...] = ()
    pipelines: tuple[Path, ...] = ()
    lookups: tuple[Path, ...] = ()
    file: Path | None = None
    channel: Name = ""
    """Empty: it is called as the set."""
    isolation: Literal["merged", "strict"] = "merged"
    """``strict``: in a process of its own, within the bounds below (``runtime/strict/``)."""
    max_memory: Size = 192 << 20
    max_cpu: Share = 0.5
    max_seconds: Seconds = 10.0
    max_backlog: Size = 0
    """0: a quarter of ``raw_log.max_bytes``."""

    @property
    def strict(self) -> bool:
        return self.isolation == "strict"

    def backlog_bytes(self, raw_log: RawLogSettings) -> int:
        return self.max_backlog or raw_log.max_bytes // 4


@dataclass(frozen=True, slots=True)
class LookupSettings:
    """Signed lookups that come by themselves: from a folder of this host, or as the region publishes them."""

    folder: Path | None = None
    max_rate: Size = 0


_NFT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
"""A name of nft that needs no quotes."""


@dataclass(frozen=True, slots=True)
class BlockSettings:
    """A table ``[[response.block]]``: alerts that have an address blocked, and where in them it stands."""

    rules: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    level: Literal["informational", "low", "medium", "high", "critical"] = "informational"
    field: str = ""


@dataclass(frozen=True, slots=True)
class ResponseSettings:
    """Local response; no overlay of the fleet changes any of it."""

    enabled: bool = False
    dry_run: bool = False
    ttl: Seconds = 3600.0
    max_blocked: int = 1000
    allow: tuple[str, ...] = ()
    allow_sessions: bool = True
    table: Name = "vedette"
    block: tuple[BlockSettings, ...] = ()

    @property
    def live(self) -> bool:
        """Whether the firewall is touched."""
        return self.enabled and not self.dry_run

    def mistakes(self) -> Iterator[str]:
        """What is wrong, each with the key it is about."""
        if not _NFT_NAME.fullmatch(self.table):
            yield f".table: expects up to 32 letters, digits and '_', a letter first, not {self.table!r}"
        for i, text in enumerate(self.allow):
            try:
                ip_network(text, strict=False)
            except ValueError:
                yield f".allow[{i}]: expects an address or a network such as 192.0.2.0/24, not {text!r}"
        for i, table in enumerate(self.block):
            if not (table.rules or table.tags):
                yield f'.block[{i}]: needs rules or tags; rules = ["*"] means every rule'


@dataclass(frozen=True, slots=True)
class EnrichSettings:
    """Columns of a lookup that go into an alert's fields, by the value of one of its fields or by its entities."""

    lookup: Name
    key: str = ""
    field: str = ""
    entity: Literal["", "ip", "user", "host", "hash", "domain", "url", "user_agent", "device"] = ""
    columns: tuple[str, ...] = ()
    prefix: str = ""

    @property
    def before(self) -> str:
        """What stands before a column's name in the alert."""
        return self.prefix or f"{self.lookup}."

    def mistakes(self) -> list[str]:
        """What is wrong, each with the key it is about."""
        mistakes = []
        if not self.lookup:
            mistakes.append(".lookup: must not be empty")
        if bool(self.field) == bool(self.entity):
            mistakes.append(": expects field or entity, and not both")
        return mistakes


@dataclass(frozen=True, slots=True)
class RedactSettings:
    """What must not leave this host in alerts, rows, evidence and hunts; no overlay changes it."""

    action: Literal["mask", "hash", "drop"] = "mask"
    fields: tuple[str, ...] = ()
    kinds: tuple[Literal["ip", "user", "host", "hash", "domain", "url", "user_agent", "device"], ...] = ()
    patterns: tuple[str, ...] = ()
    expressions: tuple[str, ...] = ()

    def mistakes(self) -> list[str]:
        """What is wrong, each with the key it is about."""
        from vedette.decode.secrets import PATTERNS, written  # with the first [[redact]]

        mistakes = []
        if not (self.fields or self.kinds or self.patterns or self.expressions):
            mistakes.append(": expects fields, kinds, patterns or expressions")
        mistakes += [f".fields[{i}]: must not be empty" for i, name in enumerate(self.fields) if not name]
        for i, name in enumerate(self.patterns):
            if name not in PATTERNS:
                near = difflib.get_close_matches(name, PATTERNS, 1)
                hint = f"did you mean {near[0]}? " if near else ""
                mistakes.append(f".patterns[{i}]: {name!r} is no pattern; {hint}known: {', '.join(PATTERNS)}")
        for i, expression in enumerate(self.expressions):
            try:
                written(expression)
            except ValueError as error:
                mistakes.append(f".expressions[{i}]: {error}")
        return mistakes


@dataclass(frozen=True, slots=True)
class EnrolmentSettings:
    """How this host becomes a member of its region; without ``token_file`` its certificate is put there by hand."""

    token_file: Path | None = None
    url: str = ""


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """What the centre may steer here; without ``root``: nothing."""

    root: Path | None = None
    labels: Labels = field(default_factory=dict)
    locked: tuple[str, ...] = ()
    undo_after: Seconds = 300.0
    allow: tuple[Literal["ask", "evidence", "hunt", "do"], ...] = ("ask", "evidence", "hunt")


@dataclass(frozen=True, slots=True)
class UplinkSettings:
    """Where alerts go: a local directory, the region's broker, from which bundles come, too, or nowhere."""

    type: Literal["directory", "mqtt", "none"] = "directory"
    path: Path | None = None
    broker: MqttSettings = MqttSettings()
    """``[broker]``."""
    receipt_keys: tuple[str, ...] = ()
    heartbeat: Seconds = 60.0
    resend_after: Seconds = 600.0
    max_bytes: Size = 256 << 20

    @property
    def receipts(self) -> str:
        """By what a receipt is known to be the region's: "signed", "TLS" (the broker's access list), or nothing."""
        return "signed" if self.receipt_keys else "TLS" if self.broker.url.startswith("mqtts:") else UNAUTHENTICATED

    @property
    def warning(self) -> str:
        """What is dangerous in these settings, and what to do; empty: nothing."""
        if self.type != "mqtt" or self.receipts != UNAUTHENTICATED:
            return ""
        return (
            f"receipts are not authenticated: whoever can publish at {self.broker.url} can make this agent delete"
            " alerts that never landed. Set uplink.receipt_keys, or use mqtts:// and an access list (docs/region.md)"
        )


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """Which plugins may be loaded: ``DISTRIBUTION`` or ``DISTRIBUTION:NAME``; no overlay changes it."""

    allow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogSettings:
    format: Literal["console", "json"] = "console"
    level: Literal["debug", "info", "warning", "error"] = "info"


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """The agent's counters for Prometheus, over HTTP."""

    listen: Address = ""


@dataclass(frozen=True, slots=True)
class Overlay:
    """What the fleet's overlay did to a configuration."""

    sha256: str = ""
    """Of the overlay; empty: there is none."""
    ignored: tuple[str, ...] = ()
    """Its settings that are not in force here."""
    lacking: tuple[str, ...] = ()
    """Those of them that the host does not lock: an earlier release may have taken them."""
    problem: str = ""
    """Why it is not in force: it does not fit the local file any more."""


@dataclass(frozen=True, slots=True)
class Config:
    agent: AgentSettings = field(default_factory=AgentSettings)
    input: tuple[InputSettings, ...] = ()
    raw_log: RawLogSettings = field(default_factory=RawLogSettings)
    archive: ArchiveSettings = field(default_factory=ArchiveSettings)
    rules: RuleSettings = field(default_factory=RuleSettings)
    state: StateSettings = field(default_factory=StateSettings)
    functions: FunctionSettings = field(default_factory=FunctionSettings)
    suppress: tuple[SuppressSettings, ...] = ()
    bundles: BundleSettings = field(default_factory=BundleSettings)
    ruleset: tuple[RulesetSettings, ...] = ()
    lookups: LookupSettings = field(default_factory=LookupSettings)
    enrich: tuple[EnrichSettings, ...] = ()
    redact: tuple[RedactSettings, ...] = ()
    enrolment: EnrolmentSettings = field(default_factory=EnrolmentSettings)
    fleet: FleetSettings = field(default_factory=FleetSettings)
    uplink: UplinkSettings = field(default_factory=UplinkSettings)
    sink: tuple[SinkSettings, ...] = ()
    plugins: PluginSettings = field(default_factory=PluginSettings)
    response: ResponseSettings = field(default_factory=ResponseSettings)
    log: LogSettings = field(default_factory=LogSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    overlay: Overlay = field(default_factory=Overlay, compare=False)

    @property
    def rulesets(self) -> tuple[RulesetSettings, ...]:
        """All of them: that of ``[rules]`` and ``[bundles]`` first, then those of ``[[ruleset]]``, each with its
        channel."""
        rules = self.rules
        bundles = self.bundles
        first = RulesetSettings(DEFAULT_SET, rules.paths, rules.pipelines, rules.lookups, bundles.file, bundles.channel)
        return (first, *(replace(more, channel=more.channel or more.name) for more in self.ruleset))
