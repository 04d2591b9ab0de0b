"""The counters that were last reported, as the next start finds them."""

from __future__ import annotations

from pathlib import Path
from random import Random

from vedette.runtime.pipeline.lives import SLOT, STATE, Reported, record


def status(n: int) -> dict[str, object]:
    counts = {"received": n, "dropped": {"kernel": n}}
    return {
        "inputs": {"in": counts},
        "totals": {"commits": n},
        "correlation_state": {**dict.fromkeys(STATE, n), "groups": 7},
    }


def test_the_last_one_is_found(tmp_path: Path) -> None:
    """However many were kept; nothing, when there was none; a full-sized file from the first on."""
    path = tmp_path / "reported"
    reported = Reported(path)
    assert reported.last is None
    size = path.stat().st_size
    for n in range(5):
        reported.keep(record("ab" * 16, n, status(n)))
        again = Reported(path)
        assert again.last == {
            "store": "ab" * 16,
            "commits": n,
            "inputs": status(n)["inputs"],
            "totals": status(n)["totals"],
            "memory": dict.fromkeys(STATE, n),
        }
        again.close()
    assert path.stat().st_size == size == 2 * SLOT
    reported.close()


def test_a_write_that_a_kill_cut_short(tmp_path: Path) -> None:
    """Whatever of the newest is there: it, or the one before it."""
    path, rng = tmp_path / "reported", Random(5)
    reported = Reported(path)
    reported.keep(record("a", 1, status(1)))
    before = path.read_bytes()
    reported.keep(record("a", 2, status(2)))
    after = path.read_bytes()
    changed = [i for i in range(len(after)) if before[i] != after[i]]
    for place in (changed[0], *rng.sample(changed, 8), changed[-1] + 1):
        path.write_bytes(after[:place] + before[place:])
        again = Reported(path)
        assert again.last is not None
        assert again.last["commits"] == (2 if place > changed[-1] else 1)
        again.close()
    reported.close()


def test_what_is_no_such_file(tmp_path: Path) -> None:
    """Bytes of any kind are no counters, and are written over."""
    path, rng = tmp_path / "reported", Random(7)
    for size in (0, 1, 15, 16, 3000, 2 * SLOT, 3 * SLOT):
        path.write_bytes(rng.randbytes(size))
        reported = Reported(path)
        assert reported.last is None
        reported.keep(record("a", 9, status(9)))
        reported.keep({"store": "x" * SLOT})  # too large: not kept
        reported.close()
        again = Reported(path)
        assert again.last is not None
        assert again.last["commits"] == 9
        again.close()
