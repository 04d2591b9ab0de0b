"""A proposal: rule files, to a signed bundle, to ``fleet.toml``, to signed documents, to the controller's first ring.

Each step is done by what a command does, with the same checks; where the console lacks a key it stops there and answers
with the commands that go on. What it signs stands in the fleet's own record, as by any signer.

    WORK/proposals/ID/proposal.json     how far it is; replaced whole
    WORK/proposals/ID/fleet.toml        the file as it was before
    WORK/proposals/ID/rules/            the rules that were built, while they are

The files are laid over the present rules and built by a child, ``vedette bundle build``, with its checks and its words:
with a rule of the proposal that does not run, or a test event that fails, nothing is built. In ``fleet.toml`` the text
around the group's bundle stays as people wrote it (``fleettoml.py``). One proposal at a time, others wait, of one user
OWN; in a bundle file of its own: none that is there is written over, and that of a proposal that is refused is taken
away. Nothing is put in force that is not this proposal: when the file has other changes, or other documents wait for
signatures, it is refused. Its bundle and its changes are on disk before they are anywhere else: after a kill the
documents say what became of it, and what is neither in force nor staged is taken back.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import shutil
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import structlog

from vedette.bundle.install import read_bundle
from vedette.bundle.manifest import rfc3339
from vedette.bundle.seal import BundleRefused
from vedette.bundle.trust import inspect
from vedette.fleet.documents import Desired, Group
from vedette.region import announce, compare, fleetfile, fleetlookups, sign
from vedette.region.repository import Repository
from vedette.system import child
from vedette.system.durable import write_whole
from vedette.system.wallclock import utc_now
from vedette.system.within import within
from vedette_console.fleet.authoring import below, write_rules
from vedette_console.fleet.documents import Contents, Documents
from vedette_console.fleet.fleettoml import bundle_line, with_bundle
from vedette_console.fleet.live import Live
from vedette_console.fleet.means import key_of, need_trust, rule_options
from vedette_console.fleet.models import Finding, Moved, Proposal, Proposed, RuleFile
from vedette_console.fleet.overview import target
from vedette_console.fleet.sight import may_on_group, need_group
from vedette_console.security.principal import Principal, user_of
from vedette_console.settings import Settings
from vedette_console.web import Listing, Problem, part_of

log = structlog.get_logger()

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


def bundle_path(name: str, version: int) -> str:
    """Below the folder of ``fleet.toml``."""
    return f"bundles/{name}-{version}.vbundle"


def next_version(desired: Desired | None) -> int:
    """A version above those of all bundles that the fleet's groups have or had."""
    changes = [change for group in desired.groups for change in group.bundles.values()] if desired else []
    targets = [target for change in changes for target in (change.to, change.from_) if target is not None]
    return max((target.version for target in targets), default=0) + 1


def lay(
    settings: Settings, repository: Repository, group: Group, ruleset: str, place: Path
) -> tuple[list[Path], str, str]:
    """The present rules in ``place``: their folders, where they are from, and the bundle's name. Blocking; raises
    OSError, ValueError."""
    change = group.bundles.get(ruleset)
    target = (change.to or change.from_) if change is not None else None
    bundle = inspect(repository.blob(target.sha256)) if target is not None else None
    name = bundle.manifest.name if bundle is not None else "rules"
    if settings.rules and ruleset == "default":
        roots = []
        for number, source in enumerate(settings.rules):
            root = place / str(number) / source.name
            if source.is_dir():
                shutil.copytree(source, root, ignore=shutil.ignore_patterns(".*"))
            else:
                root.mkdir(parents=True)
                shutil.copy(source, root)
            roots.append(root)
        return roots, f"the rules' folders {', '.join(path.name for path in settings.rules)}", name
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
    laid = []
    for file in files:
        places = [below(root, file.path) for root in roots]
        place = next((place for place in places if place.is_file()), places[0])
        if file.text is None:
            place.unlink(missing_ok=True)
            continue
        write_rules({file.path: file.text}, roots[places.index(place)])
        laid.append(place)
    return laid


async def build(settings: Settings, roots: list[Path], mine: list[Path], built: Built, output: Path) -> None:
    """Fill in ``built``. Raises OSError."""
    words = ["bundle", "build", *map(str, roots), "-o", str(output)]
    words += ["--version", str(built.version), "--name", built.name, *rule_options(settings)]
    said = output.with_suffix(".said")
    ended = await child.run_async("vedette_console.fleet.saying", str(said), *words, seconds=SECONDS, memory=MEMORY)
    text, built.data = await asyncio.to_thread(_results, said, output)
    built.findings = [*_findings(text or ended.complaint, roots)]
    names = {str(path.relative_to(root)) for path in mine for root in roots if path.is_relative_to(root)}
    if ended.code is None:
        built.data = b""
        built.findings.append(Finding(severity="error", message=f"building took longer than {SECONDS:.0f} s"))
    elif ended.code != 0 or not built.data:
        built.data = b""
        last = ended.complaint or f"the build ended with code {ended.code}"
        built.findings.append(Finding(severity="error", message=_short(last, roots)))
    elif any(finding.path in names for finding in built.findings):
        built.data = b""
    else:
        built.summary = _short(ended.out.decode("utf-8", "replace").strip().rpartition(": ")[2], roots)
        built.summary = built.summary.removesuffix(", not signed yet")


def _results(said: Path, output: Path) -> tuple[str, bytes]:
    """The child's words, and the bundle, empty for none."""
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


def signed(settings: Settings, data: bytes, fleet: str) -> bytes | None:
    """The bundle for the fleet, signed by the author's key; None: the console has none. Blocking; raises Problem 503,
    ValueError."""
    if settings.author_key is None:
        return None
    try:
        return sign.sign(data, key_of(settings.author_key), fleet, CHANNEL)
    except BundleRefused as error:
        raise ValueError(f"the bundle that was built is refused: {error}") from error


WAIT_SECONDS = 20.0
"""For the answer, before the page shows that it is being built."""
WAITING, OWN, KEPT = 10, 3, 200
ACT = "rollout.propose"
SIGN = "vedette fleet sign --key YOUR.pem"


class Proposals:
    def __init__(self, settings: Settings, live: Live, documents: Documents, news: Callable[[str], None]) -> None:
        self._settings, self._live, self._documents, self._news = settings, live, documents, news
        self._folder = settings.work_folder / "proposals"
        self._turn = asyncio.Lock()
        self._proposals: dict[str, Proposed] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        for proposed in await asyncio.to_thread(self._read):
            self._proposals[proposed.id] = proposed
            if proposed.state == "building":
                try:
                    proposed = await asyncio.to_thread(self._ended, proposed)
                except (OSError, ValueError, Problem) as error:
                    proposed = _refused(proposed, f"the console ended; what became of this cannot be read: {error}")
                await self._write(proposed)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _read(self) -> list[Proposed]:
        proposals = []
        for path in self._folder.glob("*/proposal.json"):
            with suppress(OSError, ValueError):
                proposals.append(Proposed.model_validate_json(path.read_bytes()))
        return sorted(proposals, key=lambda proposed: proposed.created)

    def _ended(self, proposed: Proposed) -> Proposed:
        """What became of one that was building when the console ended. Blocking; raises OSError, ValueError,
        Problem."""
        place, path = self._folder / proposed.id, self._settings.fleet_file
        shutil.rmtree(place / "rules", ignore_errors=True)
        reasons = ["the console ended while it was built: propose it again"]
        if proposed.bundle and path is not None:
            repository = Repository(need_trust(self._settings))
            if _desires(repository.desired(staged=True), proposed):
                return self._staged(proposed, sum(signatures.missing for signatures in repository.signatures()))
            if _desires(repository.desired(), proposed):
                return proposed.model_copy(update={"state": "applied", "commands": [self._apply()]})
            _beside(path, proposed).unlink(missing_ok=True)
            if proposed.changes:
                saved = (place / path.name).read_text("utf-8")
                text = with_bundle(saved, proposed.group, proposed.ruleset, proposed.bundle)
                if path.read_text("utf-8") == text:
                    _exchange(path, text, saved)
            if proposed.bundle in path.read_text("utf-8"):
                reasons.append(f"{path.name} names {proposed.bundle} and has other changes: plan it, or take it out")
            elif proposed.base:  # built here
                with suppress(FileNotFoundError):
                    bundle = within(path.parent, proposed.bundle)
                    if not (data := bundle.read_bytes()) or hashlib.sha256(data).hexdigest() == proposed.sha256:
                        bundle.unlink()
        return _refused(proposed, *reasons)

    async def _write(self, proposed: Proposed) -> Proposed:
        self._proposals[proposed.id] = proposed
        with suppress(OSError):
            await asyncio.to_thread(_save, self._folder / proposed.id, proposed)
        self._news(proposed.id)
        return proposed

    # --- for people

    async def propose(self, who: Principal, asked: Proposal) -> Proposed:
        """Raises Problem; what comes of building it is in the answer."""
        need_trust(self._settings)
        contents = await asyncio.to_thread(self._documents.read)
        group = _group(contents, asked.group)
        need_group(who, ACT, contents.fleet, group, {beat.site for beat in self._live.beats(contents.fleet)})
        if bool(asked.rules) == bool(asked.bundle):
            raise Problem(422, "propose either rules or a bundle", where="rules")
        building = [user_of(other.by) for other in self._proposals.values() if other.state == "building"]
        if len(building) >= WAITING:
            raise Problem(429, "too many proposals are being built", what_to_do="try again in a minute")
        if building.count(who.name) >= OWN:
            raise Problem(429, f"{OWN} of your proposals are being built", what_to_do="wait for the end of one")
        id = secrets.token_hex(8)
        proposed = self._proposals[id] = Proposed(  # it counts from here on
            id=id, state="building", by=who.who, reason=asked.reason, created=rfc3339(utc_now()), group=asked.group,
            ruleset=asked.ruleset,
        )  # fmt: skip
        try:
            await asyncio.to_thread((self._folder / id).mkdir, mode=0o700, parents=True)
            await self._write(proposed)
        except BaseException as error:
            del self._proposals[id]
            if not isinstance(error, OSError):
                raise
            raise Problem(503, f"the proposal cannot be kept: {error}", what_to_do=f"look at {self._folder}") from error
        task = asyncio.create_task(self._conduct(proposed, asked))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait({task}, timeout=WAIT_SECONDS)
        return self._proposals[id]

    def _seen(self, who: Principal, proposed: Proposed) -> bool:
        contents = self._documents.read()
        sites = {beat.site for beat in self._live.beats(contents.fleet)}
        group = contents.group(proposed.group)
        return who.sites().all or (group is not None and may_on_group(who, "read", contents.fleet, group, sites))

    def sees(self, id: str, who: Principal) -> bool:
        return id in self._proposals and self._seen(who, self._proposals[id])

    def listed(self, who: Principal, offset: int = 0, limit: int = 50) -> Listing[Proposed]:
        """Proposals that ``who`` sees, the newest first."""
        seen = [proposed for proposed in reversed([*self._proposals.values()]) if self._seen(who, proposed)]
        return part_of(seen, offset, limit, lambda proposed: proposed)

    def proposal(self, who: Principal, id: str) -> Proposed:
        """Raises Problem 404."""
        if not self.sees(id, who):
            raise Problem(404, f"no proposal {id[:64]}", where="id", what_to_do="see /rollouts/proposals")
        return self._proposals[id]

    # --- at work

    async def _conduct(self, proposed: Proposed, asked: Proposal) -> None:
        place = self._folder / proposed.id
        async with self._turn:
            try:
                proposed = await self._make(proposed, asked, place)
            except Problem as error:
                proposed = _refused(proposed, f"{error.body.error}: {error.body.what_to_do}".removesuffix(": "))
            except Exception as error:  # also what nobody foresaw: it would be building until the next start
                if not isinstance(error, OSError | ValueError | LookupError):
                    log.exception("console_proposal_failed", proposal=proposed.id)
                proposed = _refused(proposed, *(str(error) or repr(error)).splitlines()[:50])
            finally:
                await asyncio.to_thread(shutil.rmtree, place / "rules", ignore_errors=True)
            await self._write(proposed)
        for old in [*self._proposals][:-KEPT]:
            await asyncio.to_thread(shutil.rmtree, self._folder / old, ignore_errors=True)
            self._proposals.pop(old, None)

    async def _make(self, proposed: Proposed, asked: Proposal, place: Path) -> Proposed:
        """Raises Problem, OSError, ValueError."""
        contents = await asyncio.to_thread(self._documents.read)
        group = _group(contents, asked.group)
        repository = Repository(need_trust(self._settings))
        fleet_file = self._settings.fleet_file
        if contents.signatures:
            raise ValueError(
                "other documents wait for signatures: `vedette fleet sign` and `apply`, or `plan --discard`"
            )
        if asked.rules:
            built = await self._build(contents, repository, group, asked, place)
            proposed = proposed.model_copy(update={
                "version": built.version, "base": built.base, "summary": built.summary,
                "problems": built.findings[:200],
            })  # fmt: skip
            if not built.data:
                return proposed.model_copy(update={"state": "refused"})
            path = bundle_path(built.name, built.version)
            data = await asyncio.to_thread(signed, self._settings, built.data, contents.fleet)
            if data is None or fleet_file is None:
                unsigned = place / Path(path).name
                await asyncio.to_thread(write_whole, unsigned, data or built.data, 0o600)
                commands = self._by_hand(contents, proposed, unsigned, path, data is None)
                return proposed.model_copy(update={"state": "commands", "bundle": str(unsigned), "commands": commands})
        else:
            path, data = asked.bundle, None
            if fleet_file is None:
                raise Problem(503, "the console does not know fleet.toml", what_to_do="start it with --fleet-file FILE")
            there = await asyncio.to_thread(read_bundle, _below(fleet_file, path))
            proposed = proposed.model_copy(update={"version": inspect(there).version})
        digest = hashlib.sha256(there if data is None else data).hexdigest()
        proposed = proposed.model_copy(update={"bundle": path, "sha256": digest})
        proposed = await asyncio.to_thread(stage, fleet_file, repository, proposed, asked.retry, data, place)
        return await self._desire(proposed, repository)

    async def _build(
        self, contents: Contents, repository: Repository, group: Group, asked: Proposal, place: Path
    ) -> Built:  # fmt: skip
        roots, base, name = await asyncio.to_thread(
            lay, self._settings, repository, group, asked.ruleset, place / "rules"
        )
        mine = await asyncio.to_thread(over, roots, asked.rules)
        version = next_version(contents.desired)
        while (file := self._settings.fleet_file) and (file.parent / bundle_path(name, version)).exists():
            version += 1
        built = Built(name, version, base)
        await build(self._settings, roots, mine, built, place / "rules" / "built.vbundle")
        return built

    def _apply(self) -> str:
        """The command that puts in force what is signed."""
        return f"vedette fleet apply{self._broker()}"

    def _broker(self) -> str:
        return f" --broker {self._settings.broker.url}" if self._settings.broker is not None else ""

    def _by_hand(self, contents: Contents, proposed: Proposed, unsigned: Path, path: str, sign: bool) -> list[str]:
        return [
            f"vedette bundle sign {unsigned} --key AUTHOR.pem --fleet {contents.fleet} -o {path}" if sign
            else f"cp {unsigned} {path}",
            f"# in fleet.toml, [[group]] {proposed.group}: {bundle_line(proposed.ruleset, path)}",
            f"vedette fleet plan fleet.toml{self._broker()}", SIGN, self._apply(),
        ]  # fmt: skip

    async def _desire(self, proposed: Proposed, repository: Repository) -> Proposed:
        """Go from staged documents to what is in force, as far as the console's keys go."""
        missing = await asyncio.to_thread(self._sign, repository)
        if missing:
            return self._staged(proposed, missing)
        try:
            await asyncio.to_thread(repository.commit)
        except FileNotFoundError:  # the online keys are elsewhere
            return self._staged(proposed, 0)
        published = False
        if self._settings.broker is not None:
            with suppress(OSError):  # the controller announces what is in force, too
                await announce.announce(self._settings.broker, repository)
                published = True
        commands = [] if published else [self._apply()]
        return proposed.model_copy(update={"state": "applied", "published": published, "commands": commands})

    def _staged(self, proposed: Proposed, missing: int) -> Proposed:
        return proposed.model_copy(update={"state": "staged", "commands": [*[SIGN] * missing, self._apply()]})

    def _sign(self, repository: Repository) -> int:
        """Sign with the signers' keys that are here; how many signatures lack then."""
        for key in self._settings.signer_keys:
            repository.sign(key_of(key))
        return sum(signatures.missing for signatures in repository.signatures())


def stage(
    path: Path, repository: Repository, proposed: Proposed, retry: bool, bundle: bytes | None, place: Path
) -> Proposed:
    """Write the bundle (None: it is there) and the change to ``fleet.toml``, and stage the documents that it means;
    each step is noted in ``place`` first. The proposal with what moves, and the ids of the changes. Blocking; raises
    ValueError when anything else would move, OSError; the bundle's file is then gone again."""
    with ExitStack() as undo:
        _save(place, proposed)
        if bundle is not None:
            put_bundle(within(path.parent, proposed.bundle), bundle, undo)
        staged = _stage(path, repository, proposed, retry, place)
        undo.pop_all()
    return staged


def _stage(path: Path, repository: Repository, proposed: Proposed, retry: bool, place: Path) -> Proposed:
    saved = path.read_text("utf-8")
    text = with_bundle(saved, proposed.group, proposed.ruleset, proposed.bundle)
    beside = _beside(path, proposed)  # the paths in it are relative to its folder
    try:
        beside.write_text(text, "utf-8")
        document = fleetfile.read(beside, repository.fleet)
    finally:
        beside.unlink(missing_ok=True)
    before = repository.desired()
    after = fleetfile.next_desired(document, repository.fleet, before, repository.rollout(), utc_now(), retry=retry)
    operators = fleetfile.next_operators(document, repository.fleet, repository.operators())
    if after is None:
        raise ValueError(
            "nothing changes: this bundle is desired already (with `retry` an aborted change begins again)"
        )
    moved = compare.differences(before, after)
    mine = proposed.group, f"bundles {proposed.ruleset}"
    others = [f"{row.group}: {row.what}" for row in moved if (row.group, row.what) != mine]
    rings = before is not None and (before.rings, before.gates) != (after.rings, after.gates)
    if others or operators is not None or rings:
        what = ", ".join([*others, *(["operators"] if operators else []), *(["rings or gates"] if rings else [])])
        raise ValueError(
            f"fleet.toml has other changes that are not in force ({what}): plan, sign and apply these first"
        )
    fleetlookups.keep(repository.folder, document.lookups)
    group = next(group for group in after.groups if group.name == proposed.group)
    diff = [Moved(group=row.group, what=row.what, before=target(row.before), after=target(row.after)) for row in moved]
    proposed = proposed.model_copy(update={"diff": diff, "changes": [group.bundles[proposed.ruleset].id]})
    write_whole(place / path.name, saved.encode(), 0o600)
    _save(place, proposed)
    _exchange(path, saved, text)
    try:
        repository.stage_desired(after, document.files, operators)
    except BaseException:
        _exchange(path, text, saved)
        raise
    return proposed


def _desires(desired: Desired | None, proposed: Proposed) -> bool:
    """Whether the document has the change of a proposal: an id alone another change of the same serial has, too."""
    groups = desired.groups if desired is not None else ()
    return any(
        change.id in proposed.changes and change.to is not None and change.to.sha256 == proposed.sha256
        for group in groups
        for change in group.bundles.values()
    )


def _beside(path: Path, proposed: Proposed) -> Path:
    return path.with_name(f".{path.name}.{proposed.id}")


def _save(place: Path, proposed: Proposed) -> None:
    """Raises OSError."""
    write_whole(place / "proposal.json", orjson.dumps(proposed.model_dump()), 0o600)


def _exchange(path: Path, saved: str, text: str) -> None:
    """Write ``text`` in place of ``saved``. Raises ValueError when somebody has saved another meanwhile, OSError."""
    if path.read_text("utf-8") != saved:
        raise ValueError(f"{path.name} was changed by somebody else meanwhile: propose it again")
    write_whole(path, text.encode(), path.stat().st_mode & 0o777)


def put_bundle(path: Path, data: bytes, undo: ExitStack) -> None:
    """Raises FileExistsError for a file that is there: it is somebody else's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(exist_ok=False)
    undo.callback(path.unlink, missing_ok=True)
    write_whole(path, data)


def _group(contents: Contents, name: str) -> Group:
    """Raises Problem 404."""
    if (group := contents.group(name)) is None:
        raise Problem(404, f"no group {name} in the desired document", where="group", what_to_do="see /fleet")
    return group


def _below(fleet_file: Path, path: str) -> Path:
    """The place of the bundle ``path`` of a request. Raises Problem 422."""
    try:
        place = within(fleet_file.parent, path)
    except ValueError as error:
        raise Problem(422, f"no bundle below the folder of fleet.toml: {error}", where="bundle") from error
    if not path.endswith(".vbundle"):
        raise Problem(422, f"{path!r} is no bundle below the folder of fleet.toml", where="bundle")
    return place


def _refused(proposed: Proposed, *reasons: str) -> Proposed:
    problems = [*proposed.problems, *(Finding(severity="error", message=text[:2000]) for text in reasons)]
    return proposed.model_copy(update={"state": "refused", "problems": problems})
