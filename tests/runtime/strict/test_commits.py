"""The commits of a strict set: its process goes on after the agent's answer, and the agent takes no cursor that is
none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.life import Life, engine, lines
from tests.waits import eventually
from vedette.config.settings import RulesetSettings
from vedette.runtime.pipeline.blackbox import BlackBox
from vedette.runtime.strict.sender import Sender
from vedette.runtime.strict.supervisor import Isolated, StrictSet
from vedette.state.state import State


async def test_the_process_waits_for_the_answer(begin: Callable[..., Life]) -> None:
    """Until the agent says that a batch is committed, nothing of it is: a process that goes on before could skip what
    the agent then loses."""
    life, box, sent = begin(engine("evil")), BlackBox.make(), list[Any]()
    sender = Sender(life.context, State(engine("evil").plan, lateness=0, max_bytes=1 << 20), sent.append, 0, box)
    life.give(lines(b"<13>Nov 21 02:40:00 web1 app: good"))
    progress = life.context.progress
    progress.advance("in", 1, life.log.end)
    commit = asyncio.create_task(sender.commit())
    await eventually("the batch", lambda: sent)
    await asyncio.wait([commit], timeout=0)
    assert (sent[0][:2], progress.committed) == (["batch", life.log.end], 0)
    sender.done(False, 0)
    await commit
    assert progress.committed == life.log.end
    box.close()


def test_a_cursor_that_is_none(begin: Callable[..., Life]) -> None:
    """Beyond the raw log, or behind what is committed: refused, and nothing of the batch is taken."""
    life = begin(engine("evil"))
    account = life.context.isolate().begin("own", 0, 1 << 30)
    isolated = Isolated(Path("plan"), "", {}, None)
    strict = StrictSet(life.context, life.pipeline.checkpointer, RulesetSettings("own"), account, isolated)

    async def commit(offset: int) -> None:
        await strict._commit(offset, account.counters.snapshot(), [], {}, b"", False, False, None, False)

    async def work() -> None:
        life.give(lines(b"<13>Nov 21 02:40:00 web1 app: good"))
        end = life.log.end
        with pytest.raises(ValueError, match=f"a cursor of {end + 1}"):
            await commit(end + 1)
        await commit(end)
        with pytest.raises(ValueError, match=f"a cursor of {end - 1}"):
            await commit(end - 1)
        assert account.committed == end

    life.live(work)
    strict.close()
