"""The centre's folder of metadata: a commit that is killed anywhere, and what it leaves to agents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fleet.kit import DONE, FLEET, Centre, overlay, rolled
from vedette.fleet.trust import Trust, TrustRefused
from vedette.region import repository as module

ONE, TWO = b'[log]\nlevel = "debug"\n', b'[log]\nlevel = "error"\n'


@pytest.mark.parametrize("steps", range(4))
def test_a_commit_killed_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """After any of its writes an agent has the older document or the newer one, and committing again finishes it."""
    centre = Centre(tmp_path / "centre")
    centre.publish(overlay(1, ONE), {"config/1.toml": ONE})
    agent = Trust(tmp_path / "agent", FLEET, centre.root)
    agent.refresh(centre.source)
    centre.repository.stage_desired(overlay(2, TWO), {"config/2.toml": TWO})
    for key in centre.operators[:2]:
        centre.repository.sign(key)
    real, left = module.write_whole, steps

    def dying(*arguments: Any) -> None:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        real(*arguments)

    monkeypatch.setattr(module, "write_whole", dying)
    try:
        centre.repository.commit()
    except KeyboardInterrupt:
        assert steps < 3  # targets, snapshot, timestamp
    monkeypatch.undo()
    found = agent.refresh(centre.source)
    assert found.desired is not None
    assert found.desired.serial == (1 if steps < 3 else 2)
    centre.repository.commit()
    found = agent.refresh(centre.source)
    assert found.desired is not None
    assert found.desired.serial == 2
    assert centre.repository.signatures() == []


def test_the_controller_advances_while_signatures_are_collected(tmp_path: Path) -> None:
    """A roll-out document goes in force, agents take it, and what is staged stays staged."""
    centre = Centre(tmp_path / "centre")
    centre.publish(overlay(1, ONE), {"config/1.toml": ONE})
    centre.repository.stage_desired(overlay(2, TWO), {"config/2.toml": TWO})
    centre.repository.sign(centre.operators[0])
    assert centre.repository.advance(rolled(1, c1=DONE))
    assert not centre.repository.advance()
    found = Trust(tmp_path / "agent", FLEET, centre.root).refresh(centre.source)
    assert found.desired is not None
    assert (found.desired.serial, found.rollout) == (1, rolled(1, c1=DONE))
    assert [one.missing for one in centre.repository.signatures()] == [1]


def test_what_a_commit_refuses(tmp_path: Path) -> None:
    """Without enough signatures nothing changes; what is discarded is forgotten."""
    centre = Centre(tmp_path / "centre")
    centre.repository.stage_desired(overlay(1, ONE), {"config/1.toml": ONE})
    centre.repository.sign(centre.operators[0])
    with pytest.raises(ValueError, match="needs 1 more signatures"):
        centre.repository.commit()
    centre.repository.discard()
    assert not centre.repository.commit()
    assert centre.repository.desired() is None
    with pytest.raises(TrustRefused, match="root of trust"):
        Trust(tmp_path / "agent", FLEET, b"")
