"""The release that the fleet wants: fetched in pieces, installed by a helper with the rights for it, confirmed or not.

The agent itself cannot change its program, and never decides about a way back. It fetches the zip into
``DATA/upgrade``, asks for it (``request``), and after that only says of itself whether it works (``verdict``)::

    state.json      what was asked for, how often, and what was refused (``Asked``)
    pieces/SHA256   what has come of the zip; ID.zip: all of it; ID-NAME.zip: an add-on that this host has
    request         for install.sh, which runs as vedette-upgrade.service or ``supervise.sh --supervise``: it checks
                    the release by the key that the installation knows, tries it, switches, watches, goes back
    verdict         id, "confirmed" or "unfit", reason: by the new release
    answer          what came of it; under systemd in /run/vedette-upgrade, which is root's

A release is fetched at any time, and installed only in a maintenance window of the group. It confirms itself once it
was healthy, connected and evaluating for ``fleet.undo_after``; when it was not for as long, it says that it is unfit.
One that was refused or gone back from is not asked for again, until a later change wants it: no disk, no rights or
another installation at work are tried again after a while. ``VEDETTE_UPGRADES`` names the folder of answers; without
it nothing here installs releases.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import structlog

from vedette.fleet import releases
from vedette.fleet.documents import Target
from vedette.fleet.overlay import Watch
from vedette.fleet.releases import Archive, File, Release
from vedette.model.counters import Log
from vedette.runtime.member.overlay import Unwell
from vedette.runtime.member.reports import Reports
from vedette.runtime.member.targets import BLOBS, Targets
from vedette.runtime.pipeline.context import RunContext
from vedette.runtime.rulesets.blobs import Blobs
from vedette.system import installation
from vedette.system.durable import sync_path, write_whole
from vedette.version import __version__

if TYPE_CHECKING:
    from vedette.delivery.uplink import MqttUplink

log = structlog.get_logger()

WAITS = "waits for a window"
RESERVE = 64 << 20
"""Bytes that stay free on the disk of the data folder."""
MAX_ATTEMPTS = 3
"""Of one release and change, when no answer comes."""
RETRY_SECONDS = 600.0
"""Until what failed for the moment is asked for again."""
ANSWER_SECONDS = 60.0
"""For an answer to what was asked before a restart."""
STUCK_SECONDS = 30.0
"""In which an agent that has events to evaluate must have evaluated some."""
MAX_REFUSED = 20
"""That are remembered, the newest ones."""
FOR_THE_MOMENT = (13, 14, 17, 40)
"""Exit codes of install.sh: no disk, no memory, read-only, another run."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What ``state.json`` holds."""

    key: str = ""
    """Change and SHA-256 of the description that it is about."""
    id: str = ""
    nonce: str = ""
    """Of the request, which its answer repeats."""
    attempts: int = 0
    state: str = ""
    """"asked", "started" by the new release, "confirmed", "unfit"."""
    reason: str = ""
    refused: dict[str, str] = field(default_factory=dict)
    """Why, by ``key``."""


class FleetRelease:
    """One agent's."""

    def __init__(
        self, context: RunContext, unwell: Unwell, waiting: Callable[[], bool], targets: Targets, reports: Reports
    ) -> None:
        """``waiting``: whether events wait to be evaluated. Blocks on the disk. Raises OSError."""
        self._context = context
        self._unwell = unwell
        self._waiting = waiting
        self._targets = targets
        self._reports = reports
        self.running = installation.running()
        """None: not installed by install.sh."""
        self._folder = context.config.agent.data_dir / "upgrade"
        answers = os.environ.get("VEDETTE_UPGRADES")
        self._answers = Path(answers) / "answer" if answers else None
        self._asked = _read_state(self._folder)
        self._blobs = Blobs(context.config.agent.fleet, context.config.lookups.max_rate)
        self._releases: dict[str, Release] = {}
        """Descriptions by SHA-256; one."""
        self._fetching: asyncio.Task[None] | None = None
        self._watch: Watch | None = None
        self._progress = -1, 0.0
        """Events evaluated, and since when (monotonic seconds) so many."""
        self._again = time.monotonic() + ANSWER_SECONDS if self._asked.state == "asked" else 0.0
        """When (monotonic seconds) what failed for the moment is asked for again."""
        self._proof: str | None = None
        self._state = ""
        self._wanted = "", ""
        """Change and SHA-256 of the description that the documents name."""
        self._archive = ""
        """The id of the zip of that which is for this host."""

    def attach(self, uplink: MqttUplink) -> None:
        self._blobs.uplink = uplink

    @property
    def busy(self) -> bool:
        """Something is on its way, or watched."""
        return self._state in ("fetching", "asked", "unconfirmed")

    @property
    def waiting(self) -> bool:
        """For a window."""
        return self._state == WAITS

    @property
    def deciding(self) -> bool:
        """Another release may begin at any moment, or this one is watched."""
        return self._state in ("asked", "unconfirmed")

    def actual(self) -> dict[str, Any]:
        """For the heartbeat: what this code is, whether the documents' description says so, and what goes on."""
        release = {"version": __version__, "id": self.running and self.running.id, "sha256": self._proof}
        return {**release, "state": self._state}

    @property
    def refused(self) -> dict[str, str]:
        """Why the release that is wanted is not taken, by the SHA-256 of its description; as long as this change wants
        it."""
        reason = self._asked.refused.get(_key(*self._wanted))
        return {self._wanted[1]: reason} if reason is not None else {}

    async def follow(self, change: str, target: Target | None, *, due: bool, settled: bool) -> None:
        """Have the release ``target`` of ``change`` run. ``due``: a window is open; ``settled``: nothing else is being
        watched. Raises OSError."""
        self._wanted = (change, target.sha256) if target is not None else ("", "")
        try:
            reason = "" if target is None else await self._follow(change, target, due=due, settled=settled)
        except TimeoutError as error:
            reason = str(error)
        except ValueError as error:
            reason = f"{target.target if target else ''}: {error}"
        self._reports.problem("release", reason)
        if target is None:
            self._state, self._proof, self._archive = "", None, ""

    async def _follow(self, change: str, target: Target, *, due: bool, settled: bool) -> str:
        """Why the release does not run, when that is wrong."""
        self._state = ""
        release = await self._description(target)
        archive = release.archives.get(platform.machine())
        if archive is None:
            return f"{release.version} has no zip for {platform.machine()}, but for {', '.join(release.archives)}"
        if self.running is None:
            return "this agent was not installed by install.sh: upgrade it as it was installed"
        if self._archive != archive.id:
            self._archive = archive.id
            if self._asked.state != "asked":
                self._again = 0.0  # that was about another one
        key = _key(change, target.sha256)
        await self._settle(key, archive)
        if self.running.id == archive.id:
            reason = await self._confirm(archive)
            self._proof = None if self.deciding else target.sha256
            return reason
        self._proof = None
        if (refused := self._asked.refused.get(key)) is not None:
            return f"{archive.id} is not installed: {refused}"
        if self._answers is None:
            return (
                "nothing installs releases here: run the agent under systemd, or by"
                f" `sh {self.running.prefix}/supervise.sh --supervise`"
            )
        if missing := [name for name in self.running.addons if name not in archive.addons]:
            return f"{archive.id} comes without the add-on {missing[0]} of this host: name its file in `release`, too"
        if (lack := await self._fetched(archive)) is not None:
            return lack
        if not due:
            self._state = WAITS
            return ""
        if not settled:
            self._state = "waits for the overlay to be confirmed"
            return ""
        return await self._ask(key, archive)

    async def _description(self, target: Target) -> Release:
        """Raises TrustRefused (ValueError), TimeoutError, OSError."""
        if (release := self._releases.get(target.sha256)) is None:
            path = self._folder / "description.json"
            data = await asyncio.to_thread(_kept, path, target.sha256)
            if data is None:
                data = await self._targets.target(target)
                await asyncio.to_thread(_keep, path, data)
            release = releases.read(data)
            self._releases = {target.sha256: release}
        return release

    # --- fetching

    async def _fetched(self, archive: Archive) -> str | None:
        """None: the zip is here, and its add-ons. Else why not, empty while it is on its way."""
        if self._fetching is not None and self._fetching.done():
            task, self._fetching = self._fetching, None
            try:
                task.result()
            except (OSError, ValueError) as error:
                if task.get_name() == archive.id:
                    self._again = time.monotonic() + (RETRY_SECONDS if isinstance(error, ValueError) else 10.0)
                    return f"{archive.id} cannot be fetched: {error}"
        if await asyncio.to_thread(lambda: all(path.exists() for path in self._files(archive))):
            return None
        self._state = "fetching"
        if self._fetching is None:
            if time.monotonic() < self._again:
                return self._reports.of("release")
            self._fetching = asyncio.create_task(self._fetch(archive), name=archive.id)
        return ""

    async def _fetch(self, archive: Archive) -> None:
        """Until another one is wanted. Raises ValueError and OSError, with what has come kept."""
        folder, files = self._folder / "pieces", self._files(archive)
        await asyncio.to_thread(_room, folder, files)
        for file in files.values():
            for number, digest in enumerate(file.pieces):
                if self._archive != archive.id:
                    return
                path = folder / digest
                if not await asyncio.to_thread(_whole, path, digest):
                    data = await asyncio.to_thread(self._targets.carried.blob, digest)
                    if data is None or hashlib.sha256(data).hexdigest() != digest:
                        data = await self._blobs.get(BLOBS, digest, file.span(number))
                    await asyncio.to_thread(write_whole, path, data)
        for path, file in files.items():
            await asyncio.to_thread(_join, folder, file, path)
        await asyncio.to_thread(shutil.rmtree, folder)

    def _files(self, archive: Archive) -> dict[Path, File]:
        """The zip and the add-ons that this host has, by where they are put together."""
        addons = self.running.addons if self.running is not None else ()
        return {
            self._folder / f"{archive.id}.zip": archive,
            **{self._folder / f"{archive.id}-{name}.zip": archive.addons[name] for name in addons},
        }

    # --- asking

    async def _ask(self, key: str, archive: Archive) -> str:
        if self._asked.state == "confirmed" and self._asked.key == key:
            await self._refuse(key, archive, "it was rolled back on this host")
            return ""
        if self._asked.state == "asked" and self._asked.key == key:
            self._state = "asked"
            if time.monotonic() < self._again and await asyncio.to_thread((self._folder / "request").exists):
                return ""
            if self._asked.attempts >= MAX_ATTEMPTS:
                await self._refuse(key, archive, f"nobody answered, asked {self._asked.attempts} times")
                return ""
        if time.monotonic() < self._again:
            return self._reports.of("release")
        before = self._asked if self._asked.key == key else Asked(refused=self._asked.refused)
        attempts, nonce = before.attempts + 1, secrets.token_hex(8)
        asked = Asked(key, archive.id, nonce, attempts, "asked", "", before.refused)
        await self._keep(asked)
        within = int(3 * self._context.config.fleet.undo_after) + 60
        request = f"id={archive.id}\nnonce={nonce}\nzip={archive.id}.zip\nsha256={archive.sha256}\nwithin={within}\n"
        for name in self.running.addons if self.running is not None else ():
            request += f"addon={name} {archive.addons[name].sha256}\n"
        await asyncio.to_thread(_request, self._folder, request)
        self._again, self._state = time.monotonic() + within + RETRY_SECONDS, "asked"
        await self._reports.record("release_asked", id=archive.id, attempt=attempts)
        log.info(Log.RELEASE_ASKED, release=archive.id)
        return ""

    async def _settle(self, key: str, archive: Archive) -> None:
        """Take up what came of the last request."""
        asked, running = self._asked, self.running
        if not asked.id or running is None or asked.state == "confirmed":
            return
        answer = await asyncio.to_thread(_answer, self._answers, asked.nonce)
        if running.id == asked.id:
            if asked.state == "asked":
                await self._keep(replace(asked, state="started"))
                await self._reports.record("release_started", id=asked.id)
            return
        reason, state, code = answer.get("reason", ""), answer.get("state"), answer.get("code", "")
        if state == "refused" and code.isdigit() and int(code) in FOR_THE_MOMENT:
            await self._keep(replace(asked, id="", state="", attempts=0))
            await asyncio.to_thread((self._folder / "request").unlink, missing_ok=True)
            self._again = time.monotonic() + RETRY_SECONDS
            await self._reports.record("release_delayed", id=asked.id, reason=reason)
            self._reports.problem("release", f"{asked.id} is not installed yet: {reason}")
        elif state in ("refused", "back"):
            await self._refuse(asked.key, archive, reason or asked.reason)
        elif asked.state in ("started", "unfit"):  # and the answer is lost
            await self._refuse(asked.key, archive, asked.reason or "the one before was put back")

    async def _refuse(self, key: str, archive: Archive, reason: str) -> None:
        """It is not asked for again."""
        former = dict([*self._asked.refused.items()][-MAX_REFUSED + 1 :])
        id, gone_back = self._asked.id or archive.id, self._asked.state in ("started", "unfit")
        await self._keep(Asked(refused={**former, key: reason}))
        await asyncio.to_thread(_unask, self._folder)
        self._again = 0.0
        await self._reports.record("release_undone" if gone_back else "release_refused", id=id, reason=reason)
        log.error(Log.RELEASE_UNDONE, release=id, reason=reason, action=f"release {__version__} runs")

    # --- of the new release

    async def _confirm(self, archive: Archive) -> str:
        """Say whether this release, once it was asked for, works."""
        asked = self._asked
        if asked.id != archive.id or asked.state not in ("started", "unfit"):
            return ""
        self._state = "unconfirmed"
        if asked.state == "unfit":
            return f"{archive.id} is to be gone back from: {asked.reason}"
        now = time.monotonic()
        self._watch = self._watch or Watch(self._context.config.fleet.undo_after, now)
        verdict = self._watch.see(now, self._unwell() or self._idle())
        if verdict is None:
            return ""
        state = "unfit" if verdict else "confirmed"
        text = f"id={archive.id}\nverdict={state}\nreason={' '.join(verdict.split())}\n"
        await asyncio.to_thread(write_whole, self._folder / "verdict", text.encode())
        await self._keep(replace(asked, state=state, reason=verdict))
        if state == "confirmed":
            await asyncio.to_thread(_unask, self._folder)
            self._state = ""
            await self._reports.record("release_confirmed", id=archive.id)
            log.info(Log.RELEASE_CONFIRMED, release=archive.id)
        return "" if state == "confirmed" else f"{archive.id} is to be gone back from: {verdict}"

    def _idle(self) -> str:
        """Why it does not do its work, though it is connected."""
        evaluated, now = sum(self._context.counters.judged.values()), time.monotonic()
        if evaluated != self._progress[0] or not self._waiting():
            self._progress = evaluated, now
        return "events wait, and none is evaluated" if now - self._progress[1] >= STUCK_SECONDS else ""

    async def _keep(self, asked: Asked) -> None:
        self._asked = asked
        await asyncio.to_thread(write_whole, self._folder / "state.json", orjson.dumps(asdict(asked)))


def _key(change: str, sha256: str) -> str:
    return f"{change}:{sha256}"


# --- on the disk


def _read_state(folder: Path) -> Asked:
    """Blocks on the disk. A damaged file: nothing was asked for."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        document = orjson.loads((folder / "state.json").read_bytes())
        fields = {name: document[name] for name in Asked.__dataclass_fields__ if name in document}
        return Asked(**fields)
    except FileNotFoundError:
        return Asked()
    except (ValueError, TypeError) as error:
        log.error(Log.RELEASE_UNDONE, reason=f"{folder / 'state.json'} cannot be read ({error})", action="begun again")
        return Asked()


def _kept(path: Path, sha256: str) -> bytes | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return data if hashlib.sha256(data).hexdigest() == sha256 else None


def _keep(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data)


def _whole(path: Path, digest: str) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == digest
    except FileNotFoundError:
        return False


def _room(folder: Path, files: Mapping[Path, File]) -> None:
    """Make ``folder``, without pieces of other releases. Raises OSError when ``files`` have no room."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {piece for file in files.values() for piece in file.pieces}
    for path in [*folder.iterdir(), *folder.parent.glob("*.zip")]:
        if path.name not in wanted:
            path.unlink()
    there = sum(path.stat().st_size for path in folder.iterdir())
    needed, free = 2 * sum(file.size for file in files.values()) - there + RESERVE, shutil.disk_usage(folder).free
    if needed > free:
        raise OSError(f"{folder} needs {needed >> 20} MiB and {free >> 20} MiB are free: free some")


def _join(folder: Path, file: File, target: Path) -> None:
    """Raises ValueError and OSError."""
    temporary, digest = target.with_suffix(".tmp"), hashlib.sha256()
    with temporary.open("wb") as out:
        for piece in file.pieces:
            data = (folder / piece).read_bytes()
            digest.update(data)
            out.write(data)
    if digest.hexdigest() != file.sha256:
        temporary.unlink()
        raise ValueError("the pieces together are another file than was signed: make the release again")
    sync_path(temporary)
    temporary.rename(target)
    sync_path(target.parent)


def _request(folder: Path, text: str) -> None:
    (folder / "verdict").unlink(missing_ok=True)
    write_whole(folder / "request", text.encode())


def _unask(folder: Path) -> None:
    """Nothing is asked for any more, and nothing kept for it."""
    (folder / "request").unlink(missing_ok=True)
    for path in folder.glob("*.zip"):
        path.unlink()


def _answer(path: Path | None, nonce: str) -> dict[str, str]:
    """What came of the request ``nonce``; empty: nothing yet."""
    try:
        lines = path.read_text("utf-8", "replace").splitlines() if path is not None else []
    except FileNotFoundError:
        return {}
    values = {name: value for name, _, value in (line.partition("=") for line in lines)}
    return values if values.get("nonce") == nonce else {}
