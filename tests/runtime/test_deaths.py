"""What is held against a part of the agent, life by life."""

from __future__ import annotations

from tests.differences import walk
from vedette.runtime.agent.deaths import AFTER, Case, after
from vedette.runtime.pipeline.blackbox import NOWHERE, Note, Stage

FRAME = Note(100, 300, Stage.FRAME, "")
EVENT = Note(200, 200, Stage.MATCHING, "rule")
OTHER_RULE = EVENT._replace(part="another")
ALONE = Note(200, 200, Stage.ALERTS_ALONE, "")
IN_FRAME = Note(100, 300, Stage.DECODING, "acme:own 1")
LOADING = Note(NOWHERE, NOWHERE, Stage.LOADING, "acme:own 1")
LATER = Note(301, 400, Stage.FRAME, "")
REST = Note(250, 250, Stage.OTHER, "")
START = Note(0, 0, Stage.OTHER, "")


def lived(*notes: Note | None) -> list[tuple[str, int, str, int]]:
    """The cases after lives that ended at these notes; ``None``: one that was stopped at the first event."""
    cases: list[Case] = []
    for note in notes:
        cases = after(cases, REST if note is None else note, note is not None)
    return [(case.stage.name, case.first, case.part, case.deaths) for case in cases]


SUSPECT = ("FRAME", 100, "", 0)
LIVES = (
    ((), []),
    ((START, START), []),
    ((FRAME,), [SUSPECT]),
    ((FRAME, FRAME), [SUSPECT]),
    ((FRAME, EVENT), [SUSPECT, ("MATCHING", 200, "rule", 1)]),
    ((FRAME, EVENT, EVENT, EVENT), [SUSPECT, ("MATCHING", 200, "rule", AFTER)]),
    ((FRAME, EVENT, OTHER_RULE), [SUSPECT, ("MATCHING", 200, "rule", 1), ("MATCHING", 200, "another", 1)]),
    ((EVENT, ALONE), [("MATCHING", 200, "rule", 1), ("ALERTS_ALONE", 200, "", 1)]),
    ((EVENT, EVENT, None), []),  # it came past the event, and stopped
    ((EVENT, EVENT, REST), []),  # it came past the event, and was killed while it did nothing
    ((EVENT, EVENT, LATER, EVENT), [("FRAME", 301, "", 0), ("MATCHING", 200, "rule", 1)]),
    ((EVENT, EVENT, START, EVENT), [("MATCHING", 200, "rule", AFTER)]),  # killed before it came to the event
    ((EVENT, EVENT, EVENT, LATER), [("MATCHING", 200, "rule", AFTER), ("FRAME", 301, "", 0)]),  # until it is settled
    ((FRAME, IN_FRAME), [SUSPECT]),
    ((LOADING, LOADING), [("LOADING", NOWHERE, "acme:own 1", 2)]),
    ((LOADING, LOADING, REST), []),
    ((EVENT, LOADING), [("MATCHING", 200, "rule", 1), ("LOADING", NOWHERE, "acme:own 1", 1)]),
)


@walk(("notes", "cases"), LIVES)
def test_lives(notes: tuple[Note, ...], cases: list[tuple[str, int, str, int]]) -> None:
    """Deaths count at the same part of the same event, and no longer once a life has come past it."""
    assert lived(*notes) == cases
