"""Runs an action, and says how it ended: 0, or an exit code of docs/install.md."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from installer.host import Failed, Report, quiet, stop_at_signals
from installer.install import Install, Rollback
from installer.installation import Installation
from installer.staged import staged
from installer.supervise import supervise
from installer.watch import watch


def main(words: Sequence[str]) -> int:
    """``words``: the action, then KEY=VALUE. Returns the exit code."""
    action, *rest = words
    options = dict(word.split("=", 1) for word in rest)
    if action in CHANGES:
        return _changed(CHANGES[action](options))
    report = Report(Path(os.devnull))
    try:
        place = Installation.recorded(Path(options["prefix"]))
        report = place.report
        return ALONE[action](place)
    except Failed as failed:
        report.failed(failed.code, failed.text)
        return failed.code
    except OSError as error:
        report.failed(1, f"failed while {report.step}: {error}")
        return 1


def _changed(run: Install | Rollback) -> int:
    """What does not come to its end, for an error or a signal, is undone."""
    report = run.place.report
    stop_at_signals()
    code = 1
    try:
        try:
            run.do()
            code = 0
        finally:
            quiet()
    except Failed as failed:
        code = failed.code
        report.failed(code, failed.text)
    except BaseException as error:
        code = 13 if isinstance(error, OSError) and error.errno == errno.ENOSPC else 1
        reason = f": {error}" if isinstance(error, Exception) else ""
        report.failed(code, f"failed while {report.step}{reason}; see {report.log}")
    if not run.complete:
        run.undo()
    run.clean()
    return code


CHANGES: dict[str, Callable[[dict[str, str]], Install | Rollback]] = {"install": Install, "rollback": Rollback}
ALONE: dict[str, Callable[[Installation], int]] = {"watch": watch, "staged": staged, "supervise": supervise}
"""Actions on an installation that need no undoing."""
