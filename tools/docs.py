"""Write the pages of docs/ that restate code: ``python -m tools.docs``, or ``make docs``.

One function a page, each returning the text; ``PAGES`` lists them, and tests/test_docs.py compares the files with them.
Edit the code that a page is made of, not the page.
"""

from __future__ import annotations

import enum
import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import click

DOCS = Path(__file__).parents[1] / "docs"
COMMON = 4
"""Commands from which on an option of theirs is described once, above all of them."""
COMMANDS_HEAD = """# Commands

<!-- Written by `make docs` from the commands' own help. -->

Every command shows this with `--help` or `-h`; [examples.md](examples.md) shows what they print.

Exit codes are the same everywhere: **0** done; **1** done, and what was examined has a fault; **2** not done: wrong
usage or configuration, or something is missing. Results go to standard output, messages to standard error. When the
reader of standard output goes away (`| head -1`) the exit code is 0; when it cannot be written, on a full disk say, 2.
Control characters in text from logs and rules are escaped.

Run commands that read an agent's data as root or as the agent's user. Commands that read rule files need the rule
compiler (`pip install 'vedette[rules]'`); `member`, `region`, `lookup fetch|refresh|sign` and
`bundle keygen|public|build|sign` are not installed on an edge.
"""


def commands() -> str:
    """docs/commands.md: all commands of ``vedette``, from click's help."""
    from vedette.cli.main import main

    every = list(_commands(main, click.Context(main, info_name="vedette")))
    times = Counter(row for _, command in every for row in _options(command))
    common = [row for row, number in times.items() if number >= COMMON]
    parts = [COMMANDS_HEAD, "Options that mean the same in several commands:\n", _table(common)]
    for path, command in every:
        about, examples = _help(command)
        depth = "##" if isinstance(command, click.Group) else "###"
        usage = " ".join([path, *command.collect_usage_pieces(click.Context(command))])
        parts.append(f"{depth} {path}\n`{usage}`\n\n{about}\n")
        if rows := [row for row in _options(command) if row not in common]:
            parts.append(_table(rows))
        if not isinstance(command, click.Group):
            parts.append("```sh\n" + "\n".join(examples) + "\n```\n")
    return "\n".join(parts)


def _commands(group: click.Group, ctx: click.Context) -> Iterator[tuple[str, click.Command]]:
    """All commands below ``group`` by their whole names, single ones before groups."""
    commands = [(name, group.get_command(ctx, name)) for name in group.list_commands(ctx)]
    shown = [(name, command) for name, command in commands if command is not None and not command.hidden]
    for name, command in sorted(shown, key=lambda row: (isinstance(row[1], click.Group), row[0])):
        yield f"{ctx.command_path} {name}", command
        if isinstance(command, click.Group):
            yield from _commands(command, click.Context(command, info_name=name, parent=ctx))


def _options(command: click.Command) -> list[str]:
    return [_option(option) for option in command.params if isinstance(option, click.Option) and not option.hidden]


def _table(rows: list[str]) -> str:
    return "\n".join(["| option | |", "|---|---|", *rows, ""])


def _help(command: click.Command) -> tuple[str, list[str]]:
    """The paragraphs of a command's help but its examples, and these."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    examples = [
        " ".join(paragraph.removeprefix("Example: ").split())
        for paragraph in paragraphs
        if paragraph.startswith("Example: ")
    ]
    about = [
        textwrap.fill(_prose(paragraph), 120, break_on_hyphens=False)
        for paragraph in paragraphs
        if not paragraph.startswith("Example: ")
    ]
    return "\n\n".join(about), examples


def _option(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts[:-1]) + (", " if option.opts[1:] else "")
    number = isinstance(option.type, click.types.IntParamType | click.types.FloatParamType)
    value = "N" if number else option.make_metavar(click.Context(click.Command("x")))
    metavar = "" if option.is_flag else f" {value}"
    details = [option.help or ""]
    if option.required:
        details.append("Required.")
    elif option.show_default and option.default is not None:
        default = (option.opts if option.default else option.secondary_opts)[-1] if option.secondary_opts else None
        details.append(f"Default: `{default or option.default}`.")
    last = f"{'/'.join((option.opts[-1], *option.secondary_opts))}{metavar}".replace("|", "\\|")
    return f"| {names}`{last}` | {_prose(' '.join(details))} |"


def _prose(text: str) -> str:
    """``text`` on one line; what Markdown would read as something else is quoted."""
    text = " ".join(text.split())
    text = re.sub(r"(?<![`\w])(--?[a-z][a-z-]*|\*?\.[a-z]+(?:\.[a-z]+)?)(?![\w`])", r"`\1`", text)
    return re.sub(r"\|", r"\\|", text)


def metrics() -> str:
    """docs/metrics.md: what stands above "All metrics" as it is, who watches them, a row for each, the other totals."""
    from vedette.model.counters import TOTALS
    from vedette.runtime.agent.metrics import AGENT, METRICS, Use

    heading, agent = "## All metrics\n", ", ".join(f"`{name}`" for name in AGENT)
    rows = [
        f"`vedette_agent` is always 1; its labels tell which agent this is: {agent}.",
        "What ends in `_total` is a counter; the others are gauges.",
        "",
        "| for | who watches it |",
        "|---|---|",
        *(f"| {use.name.lower()} | {use} |" for use in Use),
        "",
        "| metric | labels | in the status | meaning | for |",
        "|---|---|---|---|---|",
    ]
    for metric in METRICS:
        labels = ", ".join(f"`{name}`" for name in metric.labels)
        use = metric.use.name.lower()
        rows.append(f"| `vedette_{metric.name}` | {labels} | `{metric.path}` | {metric.help} | {use} |")
    rows += ["", "## Totals that are no metrics", "| in the status | meaning |", "|---|---|"]
    watched = {metric.path for metric in METRICS}
    rows += [f"| `totals.{name}` | {text} |" for name, text in TOTALS.items() if f"totals.{name}" not in watched]
    return (DOCS / "metrics.md").read_text("utf-8").partition(heading)[0] + heading + "\n".join(rows) + "\n"


FUNCTIONS_HEAD = """# Functions of SQL rules

<!-- Written by `make docs` from the function table, agent/vedette/stream/functions. -->

What [rules in SQL](sql.md) can write, with Flink's types and values; a test runs each example. Where Flink's job would
die (a division by zero, a CAST of a text that is no number) the row is dropped and counted. Differences from Flink are
in [decision 54](decisions/0054-expressions.md).
"""


OWN_FUNCTIONS = """## Functions in Python

Modules beside the rules add functions, as PyFlink has them ([how](sql.md#functions-in-python)):

| made by | of | stands in |
|---|---|---|
| `udf` | a function, an object of a `ScalarFunction` | SELECT, WHERE, CASE, HAVING, arguments |
| `udtf` | a generator, an object of a `TableFunction` | `LATERAL TABLE(…)`, also after `LEFT JOIN` |
| `udaf` | an object of an `AggregateFunction` | SELECT and HAVING of a window, with FILTER |

A row whose call fails is dropped and counted; an aggregate leaves it out. NULL comes as `None`, and `None` is NULL.
`tests/differential/sql/own-*.json` has what Flink gives for them.
"""


def functions() -> str:
    """docs/sql-functions.md: the scalar functions of SQL, by family, and those that are refused."""
    from vedette.stream.functions.library import FAMILIES, REFUSED

    def cell(text: str) -> str:
        return text.replace("|", "\\|")

    parts = [FUNCTIONS_HEAD]
    for family in FAMILIES:
        parts.append(f"## {(inspect.getdoc(family) or '').splitlines()[0].split('. ')[0].rstrip('.')}\n")
        rows = [
            f"| `{cell(name)}` | `{cell(row.example)}` | `{cell(row.gives)}` | {cell(row.says)} |"
            for name, row in family.FUNCTIONS.items()
        ]
        parts.append(
            "\n".join(["| name | example | gives | |", "|---|---|---|---|", *rows]).replace("| `` |", "| |") + "\n"
        )
    parts.append(OWN_FUNCTIONS)
    parts.append("## Refused\n")
    rows = [f"| `{name}` | {row.instead} |" for name, row in REFUSED.items()]
    return "\n".join([*parts, "| name | why, and what instead |", "|---|---|", *rows, ""])


def plugin_api() -> str:
    """docs/plugin-api.md: what ``vedette.plugins`` has, from its protocols."""
    from vedette import plugins

    parts = [PLUGIN_HEAD]
    for name in plugins.__all__:
        public = getattr(plugins, name)
        parts.append(f"## {name}\n{_doc(public)}\n")
        for method, function in vars(public).items():
            own = function.fget if isinstance(function, property) else function
            if inspect.isfunction(own) and own.__module__ == "vedette.model.plugins" and own.__doc__:
                kind = "" if not isinstance(function, property) else ", an attribute"
                sign = str(inspect.signature(own)).replace("'", "")
                parts.append(f"`{method}{sign}`{kind}: {_doc(own)}\n")
        if issubclass(public, enum.Enum):
            parts.append(f"One of {', '.join(f'`{member.name}`' for member in public)}.\n")
        elif issubclass(public, tuple):
            parts.append(f"`{name}({', '.join(public._fields)})`\n")
    return "\n".join(parts)


def _doc(thing: object) -> str:
    return (inspect.getdoc(thing) or "").replace("``", "`")


PLUGIN_HEAD = """# What plugins import

<!-- Written by `make docs` from vedette/plugins.py. -->

All of `vedette.plugins`; [plugins.md](plugins.md) says what is promised of it. Types are for type checkers: a plugin
need not inherit from a protocol.
"""

COLUMNS_HEAD = """# Columns of the central tables

<!-- Written by `make docs` from spark_jobs/tables/schema.py and meanings.py. -->

What each table is for, and how counts add up, is in [tables.md](tables.md). Types are Spark's. A column of a key is
never null. `sum`, `low`: an upsert adds the column to what is there, or keeps the smaller value; `newest`: the row in
which it is larger gives all other columns.
"""


def columns() -> str:
    """docs/columns.md: every column of every table of the region's jobs."""
    from spark_jobs.tables.meanings import meaning
    from spark_jobs.tables.schema import TABLES

    parts = [COLUMNS_HEAD]
    for table in TABLES.values():
        rows = []
        for column in table.columns.fields:
            name = column.name
            marks = [
                word
                for word, those in (
                    ("key", table.keys), ("partition", (table.partition,)), ("sum", table.sums), ("low", table.lows),
                    ("newest", (table.newest,)),
                )
                if name in those
            ]  # fmt: skip
            kind = column.dataType.simpleString()
            rows.append(f"| `{name}` | `{kind}` | {', '.join(marks)} | {meaning(table.name, name)} |")
        parts.append("\n".join([f"## {table.name}", "| column | type | | meaning |", "|---|---|---|---|", *rows, ""]))
    return "\n".join(parts)


PAGES: dict[str, Callable[[], str]] = {
    "plugin-api.md": plugin_api,
    "columns.md": columns,
    "commands.md": commands,
    "metrics.md": metrics,
    "sql-functions.md": functions,
}
"""Each page's name in docs/, and what makes its text."""

if __name__ == "__main__":
    for name, text in PAGES.items():
        (DOCS / name).write_text(text(), "utf-8")
