"""The documents against the code: what the program has, they name; what they name, is there."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import vedette
from tests.differences import walk
from tools import docs
from vedette.cli import status_page
from vedette.cli.main import main
from vedette.delivery.envelope import ALERT, DEAD_LETTER, LANDED_ALERT, SEQS, STATUS
from vedette.model.counters import TOTALS, Counters, Dropped, Lost
from vedette.runtime.agent import status
from vedette.runtime.agent.app import Agent

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", *DOCS]


def commands_below(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Every command with its whole name, those of the region included."""
    yield ctx.command_path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None
            yield from commands_below(below, click.Context(below, info_name=name, parent=ctx))


COMMANDS = dict(commands_below(main, click.Context(main, info_name="vedette")))


def options(command: click.Command) -> set[str]:
    names = {name for param in command.params if isinstance(param, click.Option) for name in param.opts}
    return names | {"--help", "-h"}


def section(text: str, title: str) -> str:
    """The text below the heading ``title``, up to the next heading."""
    match = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert match, f"no heading {title!r}"
    return match[1]


def quoted(text: str) -> set[str]:
    """The words that stand in back quotes, code blocks left aside."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return {word for span in re.findall(r"`([^`\n]+)`", prose) for word in re.findall(r"[\w?.-]+", span)}


def status_keys() -> set[str]:
    """The top-level keys of ``status.collect``, and those that the agent adds, from their source."""
    tree = ast.parse(inspect.getsource(status.collect))
    returned = next(node.value for node in ast.walk(tree) if isinstance(node, ast.Return))
    assert isinstance(returned, ast.Dict)
    keys = {key.value for key in returned.keys if isinstance(key, ast.Constant)}
    assert None in returned.keys  # **counters.snapshot()
    added = re.findall(r'^ +answer\["(\w+)"\] = ', inspect.getsource(Agent.status), re.MULTILINE)
    assert "process" in added
    return {str(key) for key in keys} | set(Counters().snapshot()) | set(added)


def totals() -> set[str]:
    """The names under which the agent counts totals, from all of its source."""
    sources = (path.read_text("utf-8") for path in Path(vedette.__file__).parent.rglob("*.py"))
    return {name for text in sources for name in re.findall(r'\btotals\["(\w+)"\]', text)}


def shell_lines(page: Path) -> list[str]:
    """The ``vedette …`` lines of a page's sh blocks, continued lines joined."""
    blocks = re.findall(r"^```(?:sh|bash|shell|console)\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line.removeprefix("sudo ") for line in lines if re.match(r"(sudo )?vedette ", line)]


@pytest.mark.parametrize("name", docs.PAGES)
def test_pages_that_restate_code(name: str) -> None:
    """They are as ``make docs`` writes them."""
    assert (ROOT / "docs" / name).read_text("utf-8") == docs.PAGES[name](), "run `make docs`"


def test_every_reason_is_documented() -> None:
    """docs/guide.md explains every reason for which an event is dropped or lost."""
    told = section((ROOT / "docs/guide.md").read_text("utf-8"), "Counters of an input")
    assert {str(reason) for reason in (*Dropped, *Lost)} <= quoted(told)


def test_every_status_key_is_documented() -> None:
    """docs/guide.md explains every top-level key of the status."""
    keys = status_keys()
    assert {"agent_id", "inputs", "totals", "raw_log"} <= keys
    assert keys <= quoted(section((ROOT / "docs/guide.md").read_text("utf-8"), "The status"))


@pytest.mark.parametrize("name", ["README.md", "docs/examples.md"])
def test_the_status_that_is_shown(name: str) -> None:
    """The pages show the table of inputs as ``vedette status`` prints it."""
    assert status_page.INPUTS_HEAD in (ROOT / name).read_text("utf-8").splitlines()


def test_every_counter_is_documented() -> None:
    """docs/guide.md explains every counter of an input, docs/metrics.md every total that the source counts."""
    text = (ROOT / "docs/metrics.md").read_text("utf-8")
    counters = Counters()
    counters.received["an input"] = 1
    guide = section((ROOT / "docs/guide.md").read_text("utf-8"), "The status")
    assert {*counters.snapshot()["inputs"]["an input"]} <= quoted(guide)
    assert totals() == set(TOTALS)
    assert all(f"`totals.{name}`" in text for name in TOTALS)


def test_every_column_is_documented() -> None:
    """docs/alert.md names every column of the alert and of the landing's tables."""
    text = (ROOT / "docs/alert.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \|", section(text, "Columns"), re.MULTILINE)
    assert rows == [column.name for column in LANDED_ALERT]
    assert rows[: len(ALERT)] == [column.name for column in ALERT]
    for title, table in (
        ("The table status (STATUS)", STATUS),
        ("The table bad (DEAD_LETTER)", DEAD_LETTER),
        ("The table seqs (SEQS)", SEQS),
    ):
        assert {column.name for column in table} <= quoted(section(text, title))


@walk("page", PAGES)
def test_links_resolve(page: Path) -> None:
    """Every relative link leads to a file that is there, and its anchor to a heading of it."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            titles = re.findall(r"^#+ (.+)$", target.read_text("utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, link


@walk("page", PAGES)
def test_shell_lines_name_commands_and_options_that_exist(page: Path) -> None:
    """Every ``vedette …`` line of a shell block calls a command that exists, with options that exist."""
    for line in shell_lines(page):
        words = shlex.split(line, comments=True)
        words = words[: next((i for i, word in enumerate(words) if re.match(r"[|;&<>]|2>", word)), len(words))]
        path = words.pop(0)
        while words and f"{path} {words[0]}" in COMMANDS:
            path += f" {words.pop(0)}"
        command = COMMANDS[path]
        given = {word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)}
        assert given <= options(command), line
        assert not isinstance(command, click.Group) or given, line


def test_the_rules_of_the_rules_page(tmp_path: Path) -> None:
    """The files in docs/rules.md, put into a folder, load, have tests, and pass them."""
    folder, pipelines = tmp_path / "rules", tmp_path / "pipelines"
    text = (ROOT / "docs/rules.md").read_text("utf-8")
    files = re.findall(r"^( *)```yaml\n *# (\S+\.yml)\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    assert len({name for _, name, _ in files}) == len(files) > 15
    for indent, name, body in files:
        path = (pipelines if name.endswith(".pipeline.yml") else folder) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(line.removeprefix(indent) for line in body.splitlines(keepends=True)))
    arguments = ["rules", "test", "--lookup", str(ROOT / "rules/lookups"), "--pipeline", str(pipelines), str(folder)]
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, done.stderr) == (0, "")
    assert re.match(
        r"\d+ rules, [1-9]\d* correlations, \d+ events, [1-9]\d* sequences, 0 failures, 0 mistakes", done.stdout
    )


def test_shell_lines_are_found() -> None:
    """The commands page shows every command that does something in a shell block."""
    shown = "\n".join(shell_lines(ROOT / "docs/commands.md"))
    for path, command in COMMANDS.items():
        done = isinstance(command, click.Group) or command.hidden
        assert done or f"{path} " in f"{shown}\n".replace("\n", " \n"), path


def test_every_room_is_in_the_source_tour() -> None:
    """README.md names every room of the package, and no file that is not there."""
    package = Path(vedette.__file__).parent
    tour = section((ROOT / "README.md").read_text("utf-8"), "Source tour, in reading order")
    assert {path.parent.name for path in package.glob("*/__init__.py")} <= set(re.findall(r"`(\w+)/`", tour))
    assert all((package / name).exists() for name in re.findall(r"`([\w/]+\.py)`", tour) if name != "__init__.py")


def promises() -> list[tuple[str, str]]:
    """Of each row of docs/reliability.md the promise and the tests that hold it."""
    text = (ROOT / "docs/reliability.md").read_text("utf-8")
    tables = re.findall(r"^\| promise \| test that holds it .*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    rows = [row.strip("| ").split(" | ") for table in tables for row in table.splitlines()]
    return [(row[0], row[1]) for row in rows]


@cache
def by_name(path: Path) -> dict[str, bool]:
    """The tests of a file, and whether each is in ``make test``."""
    body = ast.parse(path.read_text("utf-8")).body
    long = any("pytestmark" in (text := ast.unparse(node)) and "mark.long" in text for node in body)
    return {
        node.name: not long and not any("mark.long" in ast.unparse(one) for one in node.decorator_list)
        for node in body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


@walk(("promise", "holders"), promises())
def test_every_promise_names_its_tests(promise: str, holders: str) -> None:
    """Files and tests that are there; where one of the files has a test that is not long, the first has."""
    assert not re.search(r"`test_\w+\.py", holders), "a file is named by its whole path"
    assert all((ROOT / name).exists() for name in re.findall(r"`(tests/[\w/.]+)", holders))
    files = [by_name(ROOT / name) for name in re.findall(r"`(tests/(?:\w+/)*test_\w+\.py)", holders)]
    assert files, "no test"
    assert set(re.findall(r"\b(test_\w+)`", holders)) <= set().union(*files)
    quick = [any(tests.values()) for tests in files]
    assert quick[0] or not any(quick), "the quick test first"


def test_every_end_to_end_test_holds_a_promise() -> None:
    """Each file of tests/e2e is named by a row of docs/reliability.md."""
    named = {name for _, holders in promises() for name in re.findall(r"`tests/e2e/(test_\w+\.py)", holders)}
    assert {path.name for path in (ROOT / "tests/e2e").glob("test_*.py")} <= named
