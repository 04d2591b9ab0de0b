"""What a process that has died was at."""

from __future__ import annotations

import os

from vedette.runtime.strict.blackbox import ID_BYTES, BlackBox, Note, Stage, cut


def test_what_another_process_was_at() -> None:
    """The last note is read after the process that made it is gone, with the id of what was at work."""
    box = BlackBox.make()
    if not (pid := os.fork()):
        mine = BlackBox(box.descriptor)
        mine.note(Stage.ALERTS, 17, 99)
        mine.at_work("späher")
        os._exit(0)
    os.waitpid(pid, 0)
    assert box.read() == Note(17, 99, 0, Stage.ALERTS, "späher")
    box.close()


def test_at_work() -> None:
    """Nothing is at work once it has come back, or when another stage has begun; a long id is cut between letters."""
    box = BlackBox.make()
    box.note(Stage.TIME)
    box.at_work("a")
    box.at_work("")
    assert box.read() == Note(0, 0, 0, Stage.TIME, "")
    box.at_work("b")
    box.note(Stage.ROWS)
    assert box.read().at_work == ""
    long = "x" + "ö" * ID_BYTES
    box.at_work(long)
    assert box.read().at_work == cut(long) == "x" + "ö" * ((ID_BYTES - 1) // 2)
    box.close()
