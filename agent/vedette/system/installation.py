"""How this agent was installed: the release that runs and its add-ons, and how to get one that is not there.

Which release runs is read off the place that this very code was loaded from: install.sh puts it into
``PREFIX/releases/ID/packages/vedette``, and add-ons into ``PREFIX/releases/ID/addons/NAME``.
"""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vedette.version import __version__

ID = re.compile(r"[0-9A-Za-z.+_~]{1,64}-[0-9a-f]{12}")
"""Of a release: its version, and the digest of what its zip's SHA256SUMS lists."""


@dataclass(frozen=True, slots=True)
class Installed:
    """The release that runs, as install.sh has installed it."""

    id: str
    prefix: Path
    addons: tuple[str, ...] = ()
    """Their names."""


@cache
def running(package: Path | None = None) -> Installed | None:
    """None: this agent was not installed by install.sh, but by pip or from a clone. Looked at once: what runs stays."""
    folder = (package or Path(__file__).parents[1]).resolve()
    release = folder.parent.parent
    if folder.parent.name != "packages" or release.parent.name != "releases" or not ID.fullmatch(release.name):
        return None
    addons = sorted(path.parent.name for path in release.glob("addons/[a-z]*/ADDON"))
    return Installed(release.name, release.parent.parent, tuple(addons))


def bring(extra: str, installed: Installed | None) -> str:
    """What to run for the libraries of ``extra``, which are not there."""
    if installed is None:
        return f'pip install "vedette[{extra}]"'
    file = f"vedette-{__version__}-linux-{platform.machine()}-{extra}.zip"
    return f"sh {installed.prefix}/current/install.sh --with FOLDER/{file}, the add-on file that came with the release"
