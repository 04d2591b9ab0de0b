"""The watch over a new release, by the program of the release before.

``PREFIX/watch`` has ``seconds``, ``before`` and ``id`` (the release to go back to, and the one that is watched) and
``confirm``: "yes" when that one must say of itself, within the time, that it works (``DATA/upgrade/verdict``, by the
agent). The file is there from before the switch until the watch is over, so that no kill and no boot leaves a new
release unwatched.

| state | then |
|---|---|
| another release is in force | the watch is over |
| the verdict is "confirmed" | over, answered |
| the verdict is "unfit"; three crashes; away for 30 s; time is over without the verdict that is asked for | back |
| time is over | over |
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from installer.host import PID, Failed, facts, point, remove, run, write
from installer.installation import Installation
from installer.units import CRASHES, Service, restarts, state

SWITCH_SECONDS = 60
"""From the start of a watch until ``current`` has moved; else the upgrade came to nothing."""
EVERY = 2
"""Seconds between two looks."""
AWAY_SECONDS = 30
DEFAULT_SECONDS = 300
CONFIRMED = "confirmed"


@dataclass(frozen=True, slots=True)
class Watched:
    id: str
    before: str
    """The release to go back to, as ``releases/ID``."""
    seconds: int
    confirm: bool

    @classmethod
    def read(cls, prefix: Path) -> Watched | None:
        """Return what is watched; None: nothing is."""
        rows = facts(prefix / "watch")
        if not rows.get("id") or not rows.get("before"):
            return None
        seconds = rows.get("seconds", "")
        length = int(seconds) if seconds.isdecimal() else DEFAULT_SECONDS
        return cls(rows["id"], rows["before"], length, rows.get("confirm") == "yes")

    def in_force(self, place: Installation) -> bool:
        return place.current == f"releases/{self.id}"

    def verdict(self, place: Installation) -> tuple[str, str]:
        """Return what the new release says of itself, "confirmed", "unfit" or nothing, and why."""
        rows = facts(place.data_dir / "upgrade/verdict")
        if not self.confirm or rows.get("id") != self.id:
            return "", ""
        return rows.get("verdict", ""), rows.get("reason", "")[:300]


def guard(place: Installation, watched: Watched) -> None:
    """Begin to watch. Raises OSError."""
    rows = {
        "seconds": watched.seconds,
        "before": watched.before,
        "id": watched.id,
        "confirm": "yes" if watched.confirm else "no",
    }
    write(place.prefix / "watch", "".join(f"{key}={value}\n" for key, value in rows.items()))
    if not place.systemd or not place.start:
        return
    former = place.prefix / watched.before
    if not (former / "installer").is_dir():  # its unit, which is still in force, runs this copy
        shutil.copyfile(former / "install.sh", place.prefix / "watch.sh")
    run("systemctl", "stop", "vedette-watch")
    run("systemctl", "enable", "vedette-watch")  # a reboot belongs to many an upgrade
    if run("systemctl", "start", "vedette-watch").code == 0:
        place.report.say(f"watched for {watched.seconds} s: journalctl -u vedette-watch")


def watch(place: Installation) -> int:
    """Watch, as vedette-watch.service does. Returns the exit code. Raises Failed, OSError."""
    watched = Watched.read(place.prefix)
    if watched is None:
        remove(place.prefix / "watch")  # it does not say what is watched
        return 0
    if not (place.prefix / watched.before).is_dir():
        return 0
    for _ in range(SWITCH_SECONDS):
        if watched.in_force(place):
            break
        time.sleep(1)
    else:
        remove(place.prefix / "watch")  # or a watch was interrupted as it went back
        return 0
    return _look(place, watched)


def _look(place: Installation, watched: Watched) -> int:
    away = 0
    base = restarts()
    for elapsed in range(EVERY, watched.seconds + EVERY, EVERY):
        time.sleep(EVERY)
        if not watched.in_force(place):
            return 0
        activity = state("is-active")
        if activity == "inactive":
            return 0  # by an operator's hand: Restart=always leaves no other way
        away = 0 if activity == "active" else away + EVERY
        count = restarts()
        base = min(base, count)  # an operator's restart sets it to 0
        word, reason = watched.verdict(place)
        if word == CONFIRMED:
            confirmed(place, watched)
            return 0
        wrong = ""
        if word == "unfit":
            wrong = f"it says: {reason}"
        if count - base >= CRASHES or away >= AWAY_SECONDS:
            wrong = f"it was started again {count - base} times and away for {away} s"
        elif watched.confirm and elapsed >= watched.seconds:
            wrong = f"it did not confirm itself within {watched.seconds} s"
        if wrong:
            return _go_back(place, watched, wrong, elapsed)
    remove(place.prefix / "watch")
    place.report.say(f"release {watched.id} stayed up for {watched.seconds} s")
    return 0


def confirmed(place: Installation, watched: Watched) -> None:
    """End the watch over a release that works."""
    remove(place.prefix / "watch")
    answer(place, watched.id, CONFIRMED)
    place.report.say(f"release {watched.id} has confirmed itself")


def _go_back(place: Installation, watched: Watched, wrong: str, elapsed: int) -> int:
    before = watched.before.removeprefix("releases/")
    with place.locked():
        if not watched.in_force(place):
            return 0
        place.report.warn(f"release {watched.id}: {wrong}, {elapsed} s after the upgrade: going back to {before}")
        # First: the watch would take it up at the next boot, and delete the release that it is of.
        remove(place.prefix / "watch")
        service = Service(place)
        try:
            service.back_to(watched.before, steadfast=True)
        except OSError as error:
            raise Failed(1, f"{place.prefix}/current cannot be moved to {watched.before}: {error}") from error
        _forget(place, watched)
        answer(place, watched.id, "back", reason=wrong)
        service.runs_again(watched.before)
    return 0


def go_back(place: Installation, watched: Watched, wrong: str) -> None:
    """Go back as the watch does, without systemd. Raises OSError, Failed where another run has the lock."""
    before = watched.before.removeprefix("releases/")
    place.report.warn(f"release {watched.id}: {wrong}: going back to {before}")
    with place.locked():
        point(place.prefix / "current", watched.before)
        remove(place.prefix / "watch")
        _forget(place, watched)
    answer(place, watched.id, "back", reason=wrong)
    remove(place.data_dir / "upgrade/request")


def _forget(place: Installation, watched: Watched) -> None:
    """Delete the release that was gone back from."""
    remove(place.prefix / "previous")
    remove(place.prefix / "releases" / watched.id)


def answer(place: Installation, id: str, state: str, code: int = 0, reason: str = "") -> None:
    """Answer the agent about the release ``id`` that it asked for. A disk that is full leaves it without."""
    nonce = "".join(c for c in facts(place.data_dir / "upgrade/request").get("nonce", "") if c in "0123456789abcdef")
    rows = {"id": id, "nonce": nonce, "state": state, "code": code, "reason": reason.replace("\n", " ")}
    try:
        place.answers.mkdir(parents=True, exist_ok=True)
        write(place.answers / "answer", "".join(f"{key}={value}\n" for key, value in rows.items()))
    except OSError:
        remove(place.answers / f"answer.tmp.{PID}")
