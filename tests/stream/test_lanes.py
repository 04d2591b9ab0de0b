"""``stream/network/lanes.py``: the watermark of a table by its sources."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.stream.test_network import COLUMNS, calc, network, scan, seconds, statement, windows
from vedette.model.event import MAX_EVENT, MAX_HOST
from vedette.model.times import MAX_SKEW
from vedette.stream.keyed import pack, unpack
from vedette.stream.network.lanes import IDLE, Lanes
from vedette.stream.network.network import Network

A, B, C = ("in", "a"), ("in", "b"), ("in", "c")
SECOND = 1_000_000


def table() -> Network:
    return network(statement("s", windows(calc(scan(COLUMNS, delay=0)))))


def test_of_one_source_the_watermark_is_its_newest() -> None:
    one = Lanes()
    assert [one.take(A, seconds(at), 0) for at in (3, 1, 7, 7, 5)] == [seconds(at) for at in (3, 3, 7, 7, 7)]


def test_a_host_whose_clock_is_ahead_makes_no_other_late() -> None:
    """Its rows count in windows of their own time, and the others' in theirs."""
    one = table()
    received = 1_000
    for second in range(20):
        one.feed("r", (0, seconds(received + second + 200), "h", 0), 0, A, seconds(received + second))
        one.feed("r", (0, seconds(received + second), "h", 0), 0, B, seconds(received + second))
    assert [row[3] for _, row in one.finish()] == [10, 10, 10, 10]
    assert one.counts()["s"].late == 0


def test_a_host_whose_clock_is_behind_loses_nothing() -> None:
    one = table()
    for second in range(400, 420):
        one.feed("r", (0, seconds(second - 120), "h", 0), 0, A)
        one.feed("r", (0, seconds(second), "h", 0), 0, B)
    assert [row[3] for _, row in one.finish()] == [10, 10, 10, 10]
    assert one.counts()["s"].late == 0


def test_a_host_far_behind_holds_nothing_back() -> None:
    one = Lanes()
    one.take(A, seconds(1000), 0)
    assert one.take(B, seconds(1000) - MAX_SKEW - 1, 0) == seconds(1000)
    assert one.take(C, seconds(1000) - MAX_SKEW, 0) == seconds(1000) - MAX_SKEW
    assert one.take(A, seconds(1001), 0) == seconds(1001)  # now C is, too
    assert len(one) == 1


def test_a_quiet_host_goes_on_with_the_receipts() -> None:
    one = Lanes()
    one.take(A, seconds(100), 0)
    one.take(B, seconds(90), 0)
    one.take(A, seconds(115), seconds(15))
    assert one.least(seconds(15)) == seconds(105)  # B is ten seconds behind, and stays so
    assert one.least(seconds(25)) == one.least(seconds(30)) == seconds(115)  # not beyond what a row has given
    one.take(A, seconds(170), IDLE)
    assert one.least(IDLE) == seconds(150)
    assert one.least(IDLE + 1) == seconds(170)
    assert len(one) == 1


def test_hosts_of_any_length() -> None:
    """What a sender writes in the place of a host is not kept beyond ``MAX_HOST`` characters."""
    one = Lanes()
    for number in range(3):
        one.take(("in", f"{number}" + "h" * MAX_EVENT), seconds(1 + number), 0)
    assert len(one) == 3
    assert len(pack(one.delta())) < 4 * (MAX_HOST + 100)


def test_lanes_are_bounded() -> None:
    """The one longest without a row goes, however many come."""
    one = Lanes(limit=3)
    for number in range(10_000):
        one.take(("in", str(number)), seconds(100), number)
        one.take(A, seconds(50), number)
    assert len(one) == 3
    assert one.least(10_000) == seconds(50.01)  # with the receipts
    assert len(one._heap) < 40


def test_a_line_of_tomorrow_moves_no_watermark_beyond_its_receipt() -> None:
    one = table()
    one.feed("r", (0, seconds(1300), "h", 0), 0, A, seconds(1000))
    one.feed("r", (0, seconds(1001), "h", 0), 0, B, seconds(1001))
    one.feed("r", (0, seconds(1000.5), "h", 0), 0, B, seconds(1001))
    assert [row[3] for _, row in one.finish()] == [2, 1]


ROW = st.tuples(st.sampled_from([A, B, C, ("other", "a")]), st.integers(0, 700), st.integers(0, 40))


@given(st.lists(ROW, max_size=40), st.sets(st.integers(0, 40)), st.integers(1, 4))
def test_lanes_survive(drawn: list[Any], stops: set[int], limit: int) -> None:
    """Written and read anywhere, they say the same."""

    def run(stops: set[int]) -> list[int]:
        one, saved, found, running = Lanes(limit), [], [], 0
        for number, (source, second, passes) in enumerate(drawn):
            running += passes * SECOND
            found += [one.least(running), one.take(source, seconds(second), running)]
            if number in stops:
                if number % 7 == 0:
                    saved.clear()
                    one.touch()
                saved.append(unpack(pack(one.delta())))
                one = Lanes(limit)
                for data in saved:
                    one.restore(data)
        return found

    assert run(set()) == run(stops)


ROWS = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(0, 900)), st.sampled_from([None, "", "a", "b", "c"]), st.integers(0, 9)),
    max_size=60,
)


@given(st.lists(st.tuples(ROWS, st.integers(0, 400), st.integers(0, 700)), max_size=8), st.integers(0, 20))
def test_many_rows_together_are_as_one_by_one(batches: list[tuple[list[Any], int, int]], wait: int) -> None:
    """Also what is written down of them after each batch, whatever time has passed."""

    def table() -> Network:
        return network(statement("s", windows(calc(scan(COLUMNS, delay=seconds(wait))))))

    alone, together, running = table(), table(), 0
    for rows, gone, received in batches:
        made = [(i, None if at is None else seconds(at), f"h{key}", key) for i, (at, _, key) in enumerate(rows)]
        hosts = [host for _, host, _ in rows]
        for row, host in zip(made, hosts, strict=True):
            alone.feed("r", row, 0, ("in", host or ""), seconds(received))
        together.feed_all("r", made, hosts, "in", seconds(received))
        assert together.flush() == alone.flush()
        assert pack(together.delta()) == pack(alone.delta())
        running += seconds(gone) // 10
        alone.advance(running)
        together.advance(running)
    assert together.finish() == alone.finish()
    assert together.timeless == alone.timeless
