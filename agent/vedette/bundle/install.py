"""The folder of installed bundles: stage, dry run, switch, fall back.

    bundles/
      7-3f9a0c6d21be.vbundle     versions, and links to them: vedette/system/versions.py
      current, previous          what runs, and what ran before it: the last good one
      withdrawn                  after a rollback: the highest version that was rolled back from
      trying                     what is being loaded just now, or killed the agent as it was (attempts.py)

Invariants: a bundle's file is whole and was verified before its final name appears; ``current`` always names a bundle
whose dry run succeeded: it moves only after that. At most ``KEEP`` files stay. Files are verified again each time they
are read: the disk is not trusted.

The installed version is read from the link, so a damaged file does not open the way for an older bundle; the same
bundle pushed again repairs it.

``rollback`` makes the previous bundle current, by an operator on this host. It opens no way for older bundles either:
nothing up to the version that was rolled back from is taken any more, but what is current. ``withdrawn`` is linked
before ``current`` moves: a crash between the two leaves the bundle current that was, and it stays in use.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import structlog

from vedette.bundle.attempts import Attempts
from vedette.bundle.seal import MAX_BUNDLE, BundleRefused, public_key
from vedette.bundle.trust import Bundle, Installed, addressed, admit, verify
from vedette.model.counters import Log
from vedette.system.durable import write_whole
from vedette.system.versions import Versions, digits_of, number_of
from vedette.system.wallclock import utc_now
from vedette.version import __version__

log = structlog.get_logger()

KEEP = 3
"""Bundle files kept."""

T = TypeVar("T")


def read_bundle(path: Path) -> bytes:
    """The file, but no more of it than shows that it is too large for a bundle. Raises OSError."""
    with path.open("rb") as file:
        return file.read(MAX_BUNDLE + 1)


class BundleDir:
    """The bundles of one agent of ``fleet`` that follows ``channel``; one caller at a time. Every method blocks on the
    disk: call it off the event loop.

    ``careful`` does a dry run of a bundle's bytes in an isolated process and raises when it fails: before a bundle is
    installed, and before one is loaded at a start that another start died of.

    Raises ValueError when an entry of ``trusted`` is not a public key.
    """

    def __init__(
        self,
        folder: Path,
        trusted: Sequence[str],
        *,
        fleet: str,
        channel: str,
        careful: Callable[[bytes], None] = lambda data: None,
        agent_version: str = __version__,
        clock: Callable[[], int] = utc_now,
    ) -> None:
        self.folder = folder
        self._versions = Versions(folder, ".vbundle", keep=KEEP)
        self.fleet, self.channel = fleet, channel
        self._careful = careful
        self._attempts = Attempts(folder, clock)
        self.trusted = tuple(trusted)
        for key in self.trusted:
            public_key(key)
        self.agent_version = agent_version
        self.clock = clock
        self.refused: str | None = None
        """Why the last bundle that was offered or loaded was refused; None after a success. For the status."""

    def current(self) -> Path | None:
        """The file of the current bundle, or None."""
        return self._versions.current

    def previous(self) -> Path | None:
        """The file of the one before it, or None."""
        return self._versions.previous

    def installed(self) -> Installed | None:
        """Version and digest of the current bundle, by its name."""
        path = self.current()
        return None if path is None else Installed(number_of(path), digits_of(path))

    def withdrawn(self) -> int:
        """The highest version that was rolled back from; 0: none since the last installed bundle."""
        path = self._versions.withdrawn
        return 0 if path is None else number_of(path)

    def install(
        self, data: bytes, dry_run: Callable[[Bundle], T], *, of_host: bool = False, by_fleet: bool = False
    ) -> T:
        """Stage ``data``, run ``dry_run`` (compiles and self-tests; raises when the bundle does not work), switch to
        it.

        ``of_host``: it comes from a file on this host; ``by_fleet``: the fleet's documents name it. Returns what
        ``dry_run`` returned. Raises BundleRefused, with the current bundle untouched, and OSError when the folder
        cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        name = "offered"
        try:
            sha256 = hashlib.sha256(data).hexdigest()
            self._attempts.died(sha256)
            bundle, path = self._stage(data, sha256, of_host=of_host, by_fleet=by_fleet)
            name = path.name
            try:
                self._careful(data)
                with self._attempts.of(sha256):
                    result = dry_run(bundle)
            except Exception as error:  # whatever a plan makes fail, it is why the bundle is refused
                if path != self.current():
                    path.unlink(missing_ok=True)
                raise BundleRefused(f"its self-test failed: {str(error) or type(error).__name__}") from error
        except BundleRefused as error:
            raise self._refuse(name, str(error)) from error
        self._switch(bundle, path)
        return result

    def _stage(self, data: bytes, sha256: str, *, of_host: bool, by_fleet: bool) -> tuple[Bundle, Path]:
        """Verify and admit ``data`` and write it under its name. Raises BundleRefused and OSError."""
        bundle = self.verified(data, sha256)
        addressed(bundle, self.fleet, bundle.channel if by_fleet else self.channel, of_host=of_host)
        admit(bundle, self.installed(), self.clock(), self.withdrawn(), by_fleet=by_fleet)
        path = self._versions.path(bundle.version, bundle.digest)
        write_whole(path, data)
        return bundle, path

    def verified(self, data: bytes, sha256: str = "") -> Bundle:
        """The bundle, when a key that this agent trusts signed it; ``sha256``: of ``data``, where it is known. Raises
        BundleRefused."""
        try:
            return verify(data, self.trusted, self.agent_version, sha256)
        except MemoryError as error:
            raise BundleRefused("not enough memory to open it") from error

    def _switch(self, bundle: Bundle, path: Path) -> None:
        """Make a staged bundle current and what was current previous. Raises OSError."""
        self._versions.switch(path)
        self.refused = None
        log.info(
            Log.BUNDLE_INSTALLED,
            name=bundle.manifest.name,
            version=bundle.version,
            digest=bundle.digest[:12],
        )

    def gone_back(self, version: int) -> bool:
        """Whether ``version`` was rolled back before; False when it is current. Raises BundleRefused when it is
        neither."""
        current = self.current()
        if current is None or number_of(current) == version:
            return False
        if number_of(current) < version <= self.withdrawn():
            return True
        raise BundleRefused(f"version {number_of(current)} is current, not {version}: nothing was rolled back")

    def rollback(self, dry_run: Callable[[Bundle], T]) -> tuple[Bundle, T]:
        """Make the previous bundle current when its ``dry_run`` succeeds, and the newest older one that is kept
        previous.

        Raises BundleRefused, with nothing changed, when there is none or it does not work; OSError.
        """
        current, target = self.current(), self.previous()
        if current is None or target is None or target == current:
            raise BundleRefused("no earlier bundle is kept: publish the earlier rules under a higher version")
        bundle, result = self._loaded(target, dry_run)
        if number_of(current) > self.withdrawn():
            self._versions.withdraw(current)
        self._versions.go_back(target)
        self.refused = None
        log.warning(
            Log.BUNDLE_ROLLED_BACK,
            name=bundle.manifest.name,
            version=bundle.version,
            digest=bundle.digest[:12],
            withdrawn=self.withdrawn(),
            action="no bundle up to the withdrawn version is accepted; publish a higher one",
        )
        return bundle, result

    def _loaded(self, path: Path, dry_run: Callable[[Bundle], T]) -> tuple[Bundle, T]:
        """The bundle in ``path``, verified, and what ``dry_run`` made of it. Raises BundleRefused."""
        try:
            data = read_bundle(path)
            sha256 = hashlib.sha256(data).hexdigest()
            if self._attempts.died(sha256):
                self._careful(data)
            with self._attempts.of(sha256):
                bundle = self.verified(data, sha256)
                result = dry_run(bundle)
        except Exception as error:  # also a disk that does not give the file back: the previous bundle may still load
            raise self._refuse(path.name, str(error) or type(error).__name__) from error
        if bundle.expired(self.clock()):
            log.warning(Log.BUNDLE_EXPIRED, bundle=path.name, action="it stays in use; publish a newer one")
        return bundle, result

    def load(self, dry_run: Callable[[Bundle], T]) -> tuple[Bundle, T] | None:
        """At start: the current bundle and what ``dry_run`` made of it; if it does not load, the previous one; else
        None.

        The links stay as they are. Why the current one was skipped is in ``refused``. An expired bundle is loaded, with
        a warning.
        """
        self.refused = None
        for path in (self.current(), self.previous()):
            if path is not None:
                with suppress(BundleRefused):
                    return self._loaded(path, dry_run)
        return None

    def _refuse(self, name: str, reason: str) -> BundleRefused:
        log.error(Log.BUNDLE_REFUSED, bundle=name, reason=reason, current=str(self.current() or "none"))
        self.refused = f"{name}: {reason}"  # last: another thread shows it, and then the log has it
        return BundleRefused(reason)
