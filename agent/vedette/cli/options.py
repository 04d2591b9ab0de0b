"""Options that several commands take: how rule files are read, which broker is reached, numbers and moments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vedette.cli.console import fail, safe
from vedette.model.times import micros, seconds, written_time
from vedette.mqtt.settings import MqttSettings

if TYPE_CHECKING:
    from vedette.config.settings import Config
    from vedette.engine.artifact import Artifact
    from vedette.plan.plan import Plan
    from vedette.rules.ruleset import RuleSet
    from vedette.runtime.rulesets.compiled import Sources
    from vedette.udf.host import Host

FIRST, LAST = (micros(end.replace(tzinfo=UTC)) for end in (datetime.min, datetime.max))
"""The times that can be shown."""


def rule_set(
    paths: tuple[Path, ...], pipelines: tuple[Path, ...] = (), lookups: tuple[Path, ...] = (),
    functions: Host | None = None,
) -> tuple[RuleSet, Plan]:  # fmt: skip
    """Rule files as they were read, and their plan. Raises OSError and ValueError when it cannot be built."""
    from vedette.rules import build

    ruleset = build.load(paths, pipelines, lookups, functions)
    return ruleset, build.from_rules(ruleset)


def rule_plan(
    paths: tuple[Path, ...], pipelines: tuple[Path, ...] = (), lookups: tuple[Path, ...] = (),
    functions: Host | None = None,
) -> Plan:  # fmt: skip
    return rule_set(paths, pipelines, lookups, functions)[1]


def compiled(sources: Sources, functions: Host | None, folder: Path, *, databases: bool = True) -> Artifact:
    """What was compiled of ``sources`` the last time, from the user's cache in ``folder``; else compiled and kept.
    Without ``databases`` it is the plan alone, which takes half as long."""
    from vedette.engine.artifact import Artifact
    from vedette.runtime.rulesets.compiled import compiler
    from vedette.runtime.rulesets.usercache import UserCache

    cache = UserCache(folder)
    by = (compiler(), *(["functions"] if functions is not None else []), *([] if databases else ["plan"]))
    digest = sources.digest(*by)
    artifact = cache.load(digest)
    if artifact is None:
        plan = rule_plan(*sources, functions)
        artifact = Artifact.of(plan) if databases else Artifact.without_databases(plan)
        if sources.digest(*by) == digest:  # no file changed meanwhile
            cache.keep(digest, artifact)
    return artifact


def host_of(settings: Config) -> Host | None:
    """Return what runs functions as the agent of this configuration does; ended with the command."""
    if not settings.functions.allow:
        return None
    from vedette.udf.host import Host, Limits

    host = Host(Limits(settings.functions.max_seconds, settings.functions.max_memory))
    click.get_current_context().call_on_close(host.close)
    return host


def functions_option(command: Callable[..., None]) -> Callable[..., None]:
    """``--functions``: what runs functions in Python, given as ``functions``, None without it; ended with the
    command."""

    def opened(ctx: click.Context, param: click.Parameter, value: bool) -> Host | None:
        if not value:
            return None
        from vedette.udf.host import Host

        host = Host()
        ctx.call_on_close(host.close)
        return host

    text = "Run the functions in Python that SQL rules bring along, in isolated subprocesses."
    return click.option("--functions", is_flag=True, callback=opened, help=text)(command)


def format_option(what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """``--format``: the codec by which ``what`` is read, with ``--plugin`` also a decoder plugin's; ends with a message
    when there is none of that name."""
    from vedette.decode.codecs import CODECS, DECLARED, plugged

    def loaded(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> None:
        if value:
            from vedette.runtime.agent.logs import log_to_stderr
            from vedette.runtime.options.decoders import plug

            log_to_stderr()
            if wrong := plug(value):
                fail(f"--plugin {wrong[0].partition(']: ')[2] or wrong[0]}")

    def checked(ctx: click.Context, param: click.Parameter, value: str) -> str:
        if value not in CODECS and value not in plugged and not value.startswith(DECLARED):
            formats = f"{', '.join(CODECS)}, or {DECLARED}NAME of a format of the rules"
            fail(f"--format {safe(value)}: expects one of {formats}")
        return value

    text = f"How {what} read: {', '.join(CODECS)}; {DECLARED}NAME: as the rules' format of this name."
    by_format = click.option(
        "--format", "codec", metavar="NAME", default="auto", show_default=True, callback=checked, help=text
    )
    plugin = click.option(
        "--plugin", metavar="DISTRIBUTION[:NAME]", multiple=True, is_eager=True, expose_value=False, callback=loaded,
        help="An installed plugin whose decoder --format names; may be repeated.",
    )  # fmt: skip
    return lambda command: by_format(plugin(command))


def pipeline_options(command: Callable[..., None]) -> Callable[..., None]:
    """``--pipeline``, ``--lookup`` and ``--functions``, of all commands that read rule files."""
    for option in (
        functions_option,
        click.option("--lookup", "lookups", type=click.Path(path_type=Path), multiple=True,
                     help="Values of a placeholder (NAME.txt, .csv, .vlookup), or a folder of them; may be repeated."),
        click.option("--pipeline", "pipelines", type=click.Path(path_type=Path), multiple=True,
                     help="pySigma processing pipeline (YAML) that maps fields and log sources; may be repeated."),
    ):  # fmt: skip
        command = option(command)
    return command


def required_or_empty(required: bool) -> dict[str, Any]:
    """Attributes of an option that must be there, or is empty without being given. A required one has no default, not
    even None: click takes any default for a value."""
    return {"required": True} if required else {"default": ""}


def broker_options(command: Callable[..., None], *, required: bool = True) -> Callable[..., None]:
    """The options that reach a broker: the fields of ``MqttSettings``."""
    for option in reversed(
        [
            click.option(
                "--broker",
                "url",
                **required_or_empty(required),
                metavar="URL",
                help="mqtt://host:port, or mqtts://host:port for TLS.",
            ),
            click.option("--username", default="", metavar="NAME", help="User name at the broker."),
            click.option(
                "--password-file", type=click.Path(path_type=Path), help="File whose first line is its password."
            ),
            click.option(
                "--ca-file",
                type=click.Path(path_type=Path),
                help="Authority of the broker's certificate (PEM); default: those of the host.",
            ),
            click.option(
                "--cert-file",
                type=click.Path(path_type=Path),
                help="Client certificate (PEM), with --key-file.",
            ),
            click.option("--key-file", type=click.Path(path_type=Path), help="Its private key (PEM)."),
        ]
    ):
        command = option(command)
    return command


def broker_settings(options: Mapping[str, Any]) -> MqttSettings:
    """Return what ``broker_options`` were given; click gives each its type."""
    return MqttSettings(**options)


class Number(click.FloatRange):
    """A number; click's own range takes a NaN, and without a maximum infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


def moment(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """UTC microseconds from RFC 3339 or a duration back from now."""
    if value is None:
        return None
    from vedette.system.wallclock import utc_now  # with structlog, a third of what a command without it imports

    try:
        return instant(value, utc_now())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def instant(text: str, now: int) -> int:
    """A time as people write it, or that long before ``now``, in UTC microseconds. Raises ValueError."""
    if (time := written_time(text)) is None:
        try:
            time = now - round(seconds(text) * 1_000_000)
        except ValueError:
            raise ValueError("expects RFC 3339, or a duration back from now such as 2h") from None
    if not FIRST <= time <= LAST:
        raise ValueError("lies beyond the years 1 to 9999")
    return time
