"""A bundle from rule files that somebody proposes: laid over the present rules, built by a child, signed.

The child is ``vedette bundle build``, with its checks and its words: with a rule of the proposal that does not run, or
a test event that fails, nothing is built. It is bounded in time and memory.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from vedette.bundle.seal import BundleRefused
from vedette.bundle.trust import inspect
from vedette.fleet.documents import Desired, Group
from vedette.region import sign
from vedette.region.repository import Repository
from vedette.system import child
from vedette.system.within import within
from vedette_console.fleet.authoring import below, written
from vedette_console.fleet.given import Given, key_of
from vedette_console.fleet.models import Finding, RuleFile

SECONDS, MEMORY = 600.0, 4 << 30
MAX_BASE = 20_000
"""Rule files that are laid under a proposal."""
CHANNEL = "stable"
_LINE = re.compile(r"(?P<path>[^:\n]+\.(?:ya?ml|sql|toml|py)):(?P<line>\d+):(?:(?P<column>\d+):)? ?(?P<message>.*)")


@dataclass(slots=True)
class Built:
    """``data`` empty: it was not built, ``findings`` say why."""

    name: str
    version: int
    base: str
    data: bytes = b""
    summary: str = ""
    findings: list[Finding] = field(default_factory=list)


def next_version(desired: Desired | None) -> int:
    """Above those of all bundles that the fleet's groups have or had."""
    changes = [change for group in desired.groups for change in group.bundles.values()] if desired else []
    targets = [one for change in changes for one in (change.to, change.from_) if one is not None]
    return max((one.version for one in targets), default=0) + 1


def lay(given: Given, repository: Repository, group: Group, ruleset: str, place: Path) -> tuple[list[Path], str, str]:
    """The present rules in ``place``: their folders, where they are from, and the bundle's name. Blocking; raises
    OSError, ValueError."""
    change = group.bundles.get(ruleset)
    target = (change.to or change.from_) if change is not None else None
    bundle = inspect(repository.blob(target.sha256)) if target is not None else None
    name = bundle.manifest.name if bundle is not None else "rules"
    if given.rules and ruleset == "default":
        roots = []
        for number, source in enumerate(given.rules):
            root = place / str(number) / source.name
            if source.is_dir():
                shutil.copytree(source, root, ignore=shutil.ignore_patterns(".*"))
            else:
                root.mkdir(parents=True)
                shutil.copy(source, root)
            roots.append(root)
        return roots, f"the rules' folders {', '.join(one.name for one in given.rules)}", name
    root = place / "0"
    root.mkdir(parents=True)
    if bundle is None:
        return [root], "nothing", name
    if len(bundle.sources) > MAX_BASE:
        raise ValueError(f"the bundle has more than {MAX_BASE} rule files")
    for path, data in bundle.sources.items():
        file = within(root, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return [root], f"bundle {name}-{bundle.version}, which brings no test events of its rules", name


def over(roots: list[Path], files: Iterable[RuleFile]) -> list[Path]:
    """Lay the proposal's files over them; where each is now. Blocking; raises Problem 422, OSError."""
    found = []
    for one in files:
        places = [below(root, one.path) for root in roots]
        place = next((place for place in places if place.is_file()), places[0])
        if one.text is None:
            place.unlink(missing_ok=True)
            continue
        written({one.path: one.text}, roots[places.index(place)])
        found.append(place)
    return found


async def build(
    given: Given, roots: list[Path], mine: list[Path], built: Built, output: Path, sample: Path | None = None
) -> None:
    """Fill in ``built``. Raises OSError."""
    words = [
        "bundle",
        "build",
        *map(str, roots),
        "-o",
        str(output),
        "--version",
        str(built.version),
        "--name",
        built.name,
    ]
    for option, paths in (("--pipeline", given.pipelines), ("--lookup", given.lookups)):
        words += [word for path in paths for word in (option, str(path.resolve()))]
    said = output.with_suffix(".said")
    ended = await child.run_async("vedette_console.fleet.saying", str(said), *words, seconds=SECONDS, memory=MEMORY)
    text, built.data = await asyncio.to_thread(_taken, said, output)
    built.findings = [*_findings(text or ended.complaint, roots)]
    names = {str(path.relative_to(root)) for path in mine for root in roots if path.is_relative_to(root)}
    if ended.code is None:
        built.data = b""
        built.findings.append(Finding(severity="error", message=f"building took longer than {SECONDS:.0f} s"))
    elif ended.code != 0 or not built.data:
        built.data = b""
        last = ended.complaint or f"the build ended with code {ended.code}"
        built.findings.append(Finding(severity="error", message=_short(last, roots)))
    elif any(one.path in names for one in built.findings):
        built.data = b""
    else:
        built.summary = _short(ended.out.decode("utf-8", "replace").strip().rpartition(": ")[2], roots)
        built.summary = built.summary.removesuffix(", not signed yet")


def _taken(said: Path, output: Path) -> tuple[str, bytes]:
    text = said.read_text("utf-8", "replace") if said.exists() else ""
    return text, output.read_bytes() if output.exists() else b""


def _findings(text: str, roots: list[Path]) -> Iterable[Finding]:
    for line in text.splitlines()[:2000]:
        if (match := _LINE.match(line.strip())) is not None:
            yield Finding(severity="error", check="refused", path=_short(match["path"], roots), line=int(match["line"]),
                          column=int(match["column"] or 0), message=_short(match["message"], roots))  # fmt: skip


def _short(text: str, roots: list[Path]) -> str:
    for root in roots:
        text = text.replace(f"{root}/", "")
    return text[:2000]


def signed(given: Given, data: bytes, fleet: str) -> bytes | None:
    """For the fleet, by the author's key; None: the console has none. Blocking; raises Problem 503, ValueError."""
    if given.author_key is None:
        return None
    try:
        return sign.sign(data, key_of(given.author_key), fleet, CHANNEL)
    except BundleRefused as error:
        raise ValueError(f"the bundle that was built is refused: {error}") from error
