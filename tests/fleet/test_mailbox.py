"""What a broker retains is kept within bounds, whatever anybody puts there."""

from __future__ import annotations

from vedette.fleet.mailbox import KEPT, MAX_BYTES, MAX_FILE, ROOTS, Mailbox


def test_only_metadata() -> None:
    """Files by their names; the same again is no news, an empty one is gone."""
    box = Mailbox()
    assert box.put("timestamp.json", b"1")
    assert not box.put("timestamp.json", b"1")
    assert box.put("3.root.json", b"r")
    for name in ("root.json", "0.root.json", "../1.root.json", "1.evil.json", "1.root.json.x", "", "x" * 9000):
        assert not box.put(name, b"x")
    assert (box.metadata("timestamp.json"), box.metadata("3.root.json"), len(box)) == (b"1", b"r", 2)
    assert not box.put("timestamp.json", b"")
    assert box.metadata("timestamp.json") is None


def test_a_flood_is_bounded() -> None:
    """Of each role the newest versions stay, of roots the oldest; one that is too long is none."""
    box = Mailbox()
    assert not box.put("timestamp.json", b"x" * (MAX_FILE + 1))
    for i in range(1999, 0, -1):
        for role in ("snapshot", "targets", "rollout", "root"):
            box.put(f"{i}.{role}.json", b"x")
    assert len(box) == 3 * KEPT + ROOTS
    assert box.metadata("1999.targets.json") == b"x"
    assert box.metadata("1.root.json") == b"x"
    for i in range(1, 300):
        box.put(f"{i}.root.json", b"x" * MAX_FILE)
    assert sum(len(box.metadata(f"{i}.root.json") or b"") for i in range(300)) <= MAX_BYTES
