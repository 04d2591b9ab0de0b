"""What a process that has died was at."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from vedette.runtime.pipeline.blackbox import ID_BYTES, NOWHERE, BlackBox, Note, Stage, cut


def test_what_another_process_was_at(tmp_path: Path) -> None:
    """The last note is read after the process that made it is gone, with the part that was at work; in a file, too."""
    for box, mapped in (
        (memory := BlackBox.make(), lambda: BlackBox(memory.descriptor)),
        (BlackBox.open(tmp_path / "box"), lambda: BlackBox.open(tmp_path / "box")),
    ):
        if not (pid := os.fork()):
            mine = mapped()
            mine.note(Stage.ALERTS_ALONE, 17, 99)
            mine.at_work("späher")
            os._exit(0)
        os.waitpid(pid, 0)
        assert box.read() == Note(17, 99, Stage.ALERTS_ALONE, "späher")
        box.close()
    assert (tmp_path / "box").stat().st_mode & 0o777 == 0o640


def test_at_work() -> None:
    """Nothing is at work once it has come back, or when another stage has begun; a long id is cut between letters."""
    box = BlackBox.make()
    box.note(Stage.TIME)
    box.at_work("a")
    box.at_work("")
    assert box.read() == Note(0, 0, Stage.TIME, "")
    box.at_work("b")
    box.note(Stage.ROWS)
    assert box.read().part == ""
    long = "x" + "ö" * ID_BYTES
    box.at_work(long)
    assert box.read().part == cut(long) == "x" + "ö" * ((ID_BYTES - 1) // 2)
    box.close()


def test_beside_evaluation(tmp_path: Path) -> None:
    """What is at work in threads of its own is read after the process is gone, each name once, and whether that life
    had lasted; where there is no room it is not noted, and what has ended is not at work."""
    if not (pid := os.fork()):
        box = BlackBox.open(tmp_path / "box")
        with ExitStack() as stack, box.beside("ended"):
            for _ in range(100):
                stack.enter_context(box.beside("x" * ID_BYTES))
        with box.beside("a"), box.beside("b"), box.beside("b"):
            box.outlived()
            os._exit(0)
    os.waitpid(pid, 0)
    box = BlackBox.open(tmp_path / "box")
    assert box.read_beside() == ({"a", "b"}, True)
    box.rest_beside()
    assert box.read_beside() == (set(), False)
    with box.beside("späher"):
        assert box.read_beside() == ({"späher"}, False)
        box.close()


def test_a_step_within_another() -> None:
    """The outer one goes on behind it, with its part; what rests still says how far it came; a file of garbage says
    nothing."""
    box = BlackBox.make()
    box.note(Stage.FRAME, 10, 30)
    with box.within(Stage.MATCHING, 20, "rule"):
        with box.within(Stage.DECODING, None, "plugin of a longer name"):
            assert box.read() == Note(20, 20, Stage.DECODING, "plugin of a longer name")
        assert box.read() == Note(20, 20, Stage.MATCHING, "rule")
    with box.within(Stage.LOADING, NOWHERE):
        assert box.read() == Note(NOWHERE, NOWHERE, Stage.LOADING, "")
    assert box.read() == Note(10, 30, Stage.FRAME, "")
    box.rest()
    assert box.read() == Note(10, 30, Stage.OTHER, "")
    with pytest.raises(KeyError), box.within(Stage.TIME, 5):
        raise KeyError
    assert box.read() == Note(10, 30, Stage.OTHER, "")
    with pytest.raises(MemoryError), box.within(Stage.TIME, 5):
        raise MemoryError
    assert box.read() == Note(5, 5, Stage.TIME, "")
    os.pwrite(box.descriptor, b"\xff" * 300, 0)
    assert box.read().stage is Stage.OTHER
    box.close()
