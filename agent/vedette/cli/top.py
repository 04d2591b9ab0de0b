"""``vedette top``: the running agent at a glance, again and again.

On a terminal the page is drawn over itself until ``q`` or Ctrl-C; the space bar holds it still. Elsewhere it is printed
as plain text, ``--count`` times. The terminal is left as it was found, whatever ends the command.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import click

from vedette.cli.agent import alert_line
from vedette.cli.console import config_option, data_folder, data_option, fail
from vedette.cli.options import Number
from vedette.cli.top_page import SECTION_MOST, Look, page
from vedette.system.terminal import safe

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
"""To a screen of its own, without a cursor, long lines cut off; and back (ECMA-48, xterm's private modes)."""
HOME, TO_END_OF_LINE, TO_END = "\x1b[H", "\x1b[K", "\x1b[J"
BOLD, PLAIN = "\x1b[1m", "\x1b[m"


@click.command()
@config_option
@data_option
@click.option("--interval", default=2.0, show_default=True, metavar="SECONDS", type=Number(0.2, 3600),
              help="Between two looks; rates are of this time.")  # fmt: skip
@click.option("--count", default=1, show_default=True, metavar="N", type=click.IntRange(1),
              help="Pages to print where standard output is no terminal.")  # fmt: skip
def top(config: Path, data_dir: Path | None, interval: float, count: int) -> None:
    """Watch the running agent.

    Events a second by input, lag, candidates, the rules that cost and that alert most, what correlations and statements
    keep, outbox, uplink, problems, newest alerts. On a terminal: q ends it, the space bar holds it still. Elsewhere
    plain text. Exit code 2 when no agent answers.

    Example: vedette top

    Example: vedette top --count 5 > top.txt
    """
    folder = data_folder(config, data_dir)
    try:
        if sys.stdout.isatty() and sys.stdin.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            _watch(folder, interval)
        else:
            _print(folder, interval, count)
    except KeyError as error:
        fail(f"the running agent is of another release, without {error} in its status: restart it")


def look(folder: Path) -> Look:
    """Raises OSError when no agent answers, ValueError when it refuses."""
    from vedette.runtime.agent.control import ask
    from vedette.store.store import Store

    socket = folder / "control.sock"
    status, busiest = ask(socket, "status"), ask(socket, "busiest", most=SECTION_MOST)
    with Store.open(folder / "store", readonly=True) as store:
        alerts = [alert_line(alert.data) for alert in store.tail(SECTION_MOST)]
    return Look(status, busiest, alerts)


def _print(folder: Path, interval: float, count: int) -> None:
    before = look(folder)
    for number in range(count):
        time.sleep(interval)
        now = look(folder)
        click.echo("\n".join([*([""] if number else []), *page(before, now)]))
        sys.stdout.flush()
        before = now


def _watch(folder: Path, interval: float) -> None:
    before = now = look(folder)
    with _screen() as key, suppress(KeyboardInterrupt):
        held = False
        while True:
            if not held:
                size = shutil.get_terminal_size()
                _draw(page(before, now, size.lines - 1), size.columns)
            pressed = key(interval)
            if pressed in ("q", "Q", "\x03", "\x04"):
                return
            if pressed == " ":
                held = not held
            elif not pressed and not held:
                try:
                    before, now = now, look(folder)
                except (OSError, ValueError) as error:
                    _draw([f"{safe(str(error))}", "", "waiting for it; q ends"], shutil.get_terminal_size().columns)
                    if key(interval) in ("q", "Q", "\x03", "\x04"):
                        return


def _draw(lines: list[str], columns: int) -> None:
    """A line that is a section's heading, behind an empty one, is bold, as are the first and those in capitals."""
    drawn, bold = [HOME], True
    for line in lines:
        strong = bold or line[:4].isupper()
        text = line[:columns]
        drawn.append(f"{BOLD}{text}{PLAIN}{TO_END_OF_LINE}\r\n" if strong else f"{text}{TO_END_OF_LINE}\r\n")
        bold = not line
    sys.stdout.write("".join(drawn) + TO_END)
    sys.stdout.flush()


@contextmanager
def _screen() -> Iterator[Callable[[float], str]]:
    """The terminal, for as long as it takes; gives what waits so many seconds for a key. A stop (Ctrl-Z), which would
    leave it as it is, is not taken meanwhile."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def key(seconds: float) -> str:
        """Empty when none was pressed; end of input ends the command as ``q`` does."""
        if not select.select([descriptor], [], [], seconds)[0]:
            return ""
        return os.read(descriptor, 32).decode("ascii", "replace")[:1] or "q"

    def end(number: int, frame: object) -> NoReturn:
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where it is started with Ctrl-C ignored
    try:
        tty.setcbreak(descriptor)
        sys.stdout.write(ENTER)
        yield key
    finally:
        sys.stdout.write(LEAVE)
        sys.stdout.flush()
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
