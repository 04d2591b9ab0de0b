"""Installs the release that the agent has fetched, if those have signed it who signed the one in force.

``take.py`` takes it out of the agent's folder, which may be in wrong hands; the release's own install.sh then does what
it does for an operator. The answer has the exit code; this action ends with 0 always.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from installer.host import facts, program, remove, run
from installer.installation import Installation
from installer.watch import answer

ID = re.compile(r"[0-9A-Za-z.+_~-]+")


def staged(place: Installation) -> int:
    """Install what was asked for, as vedette-upgrade.service and the supervisor do. Returns 0."""
    place.report.step = "taking the release that the agent has fetched"
    request = place.data_dir / "upgrade/request"
    id = facts(request).get("id", "")
    if not ID.fullmatch(id) or place.current == f"releases/{id}":
        return 0  # no request, or one that is answered and watched
    scratch = place.prefix / ".staged"
    try:
        code, reason = _install(place, scratch)
    except OSError as error:
        code, reason = 1, str(error)
    finally:
        remove(scratch)
    if code == 0:
        answer(place, id, "installed")
        return 0
    place.report.say(f"release {id} is not installed: {reason}")
    answer(place, id, "refused", code, reason)
    if not place.systemd:
        remove(request)
    return 0


def _install(place: Installation, scratch: Path) -> tuple[int, str]:
    """Exit code and reason; 0: it is installed."""
    if not os.access(place.prefix, os.W_OK):
        return 17, f"{place.prefix} cannot be written to: a read-only file system, or another user's"
    remove(scratch)
    try:
        scratch.mkdir(0o700)
    except OSError as error:
        return 13, str(error)
    release = (place.prefix / "current").resolve()
    key = facts(place.prefix / "installed").get("release_key", "")
    code, text = program(release, release / "take.py", place.data_dir / "upgrade", scratch, key)
    if code:
        return (13 if code == 13 else 21), text
    within = facts(scratch / "request").get("within", "")
    options = ["--upgrade", "--allow-downgrade", "--within", within, *([] if place.systemd else ["--no-systemd"])]
    script = scratch / "install.sh"
    code, text = run("sh", script, "--prefix", place.prefix, "--log", place.report.log, *options)
    messages = [line.removeprefix("vedette: ") for line in text.splitlines() if line.startswith("vedette: ")]
    reasons = [line for line in messages if not re.fullmatch(r"release .* runs again", line)]
    return code, reasons[-1][:500] if reasons else text[-500:]
