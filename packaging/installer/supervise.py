"""Runs the agent where there is no systemd, and does there what vedette-upgrade and vedette-watch do.

| event | then |
|---|---|
| the agent ends | it is started again after a second |
| the agent ends three times under a watch | the release before comes back |
| a request of the agent's is there | it is installed (``staged.py``), and the agent restarted |
| the verdict is "unfit", or none comes in time | the release before comes back, and the agent is restarted |
| SIGHUP | passed on to the agent |
| SIGTERM, SIGINT | passed on; ends with the agent's exit code |
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from types import FrameType

from installer.host import Failed, remove, same
from installer.installation import Installation
from installer.staged import staged
from installer.units import CRASHES
from installer.watch import CONFIRMED, Watched, confirmed, go_back

STOP_SECONDS = 60


def supervise(place: Installation) -> int:
    """Run the agent until a signal ends it; returns its exit code. Raises Failed."""
    if place.systemd:
        raise Failed(2, f"--supervise: systemd runs the agent of {place.prefix}")
    return _Supervisor(place).run()


class _Supervisor:
    def __init__(self, place: Installation) -> None:
        self.place = place
        self.agent: subprocess.Popen[bytes] | None = None
        self.ended = False
        signal.signal(signal.SIGHUP, self._pass_on)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        if self.agent is not None:
            self.agent.send_signal(number)

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self.ended = True
        if self.agent is not None:
            self.agent.terminate()

    def run(self) -> int:
        code = 0
        while not self.ended:
            self._before_start()
            code = self._life()
            if not self.ended:
                time.sleep(1)
        return code

    def _before_start(self) -> None:
        """Counts the starts of a release that is watched, and goes back from one that ended too often."""
        watched = Watched.read(self.place.prefix)
        if watched is None:
            return
        path = self.place.prefix / "watch"
        if not watched.in_force(self.place):
            remove(path)
            return
        starts = path.read_text("utf-8").splitlines().count("start")
        if starts >= CRASHES:
            self._back(watched, f"it ended {starts} times before it confirmed itself")
            return
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write("start\n")
        except OSError:
            pass  # a full disk: its time is over some day, too

    def _life(self) -> int:
        """Run the agent once; returns its exit code, as a shell has it."""
        command = [f"{self.place.prefix}/current/bin/vedette", "run", "-c", str(self.place.config)]
        environment = {**os.environ, "VEDETTE_UPGRADES": str(self.place.answers)}
        try:
            self.agent = subprocess.Popen(command, env=environment)
        except OSError as error:
            self.place.report.warn(f"the agent does not start: {error}")
            return 127
        elapsed = 0
        while not self.ended and self.agent.poll() is None:
            self._wait(1)
            self._reap()
            elapsed += 1
            if self._to_leave(elapsed):
                self.agent.terminate()
                break
        if self.ended:
            self.agent.terminate()
        if not self._wait(STOP_SECONDS):
            self.agent.kill()
        code = self.agent.wait()
        self.agent = None
        return code if code >= 0 else 128 - code

    def _wait(self, seconds: float) -> bool:
        """Say whether the agent has ended by then."""
        assert self.agent is not None
        try:
            self.agent.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _reap(self) -> None:
        """Reap orphans that have become this process's children, as it is the first of a container."""
        assert self.agent is not None
        with suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid == self.agent.pid:
                    return
                os.waitpid(ended.si_pid, 0)

    def _to_leave(self, elapsed: int) -> bool:
        """Look at a running agent: returns whether it is to end, for another release."""
        watched = Watched.read(self.place.prefix)
        if watched is None:
            return self._take()
        word, reason = watched.verdict(self.place)
        if word == CONFIRMED:
            confirmed(self.place, watched)
            with suppress(OSError):  # the one that is there goes on
                launcher(self.place)
            return False
        if word == "unfit":
            return self._back(watched, f"it says: {reason}")
        if elapsed >= watched.seconds:
            return self._back(watched, f"it did not confirm itself within {watched.seconds} s")
        return False

    def _take(self) -> bool:
        if not (self.place.data_dir / "upgrade/request").is_file():
            return False
        before = self.place.current
        staged(self.place)
        return self.place.current != before

    def _back(self, watched: Watched, wrong: str) -> bool:
        try:
            go_back(self.place, watched, wrong)
        except (OSError, Failed) as error:
            self.place.report.warn(f"not gone back: {error}")
        return True


def launcher(place: Installation) -> None:
    """Put the script that starts the supervisor, of the release in force. Raises OSError."""
    source = place.prefix / "current/supervise.sh"
    target = place.prefix / "supervise.sh"
    if target.is_file() and same(source, target):
        return
    temporary = place.prefix / f"supervise.sh.tmp.{os.getpid()}"
    shutil.copyfile(source, temporary)
    temporary.replace(target)
