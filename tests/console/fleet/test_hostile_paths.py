"""Paths and names in requests to the console: none reaches a file outside the folder that it is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from vedette_console.fleet.authoring import write_rules
from vedette_console.fleet.models import Proposal, RuleFile
from vedette_console.fleet.models_asked import EvidenceOrder
from vedette_console.fleet.propose import _below, over
from vedette_console.web import Problem

LINKED = "out/console.db"
"""By its letters a path like others."""
ABSOLUTE = "/console.db"
"""Below the test's own folder (``absolute``): a console that lets one by removes it, and no file of the host's."""
HOSTILE = ("../../console.db", "..", ".", "a/../../../console.db", ABSOLUTE, LINKED, "", "a//b", "a\0b",
           "a\nb", "x" * 5000, "\ud800")  # fmt: skip


def absolute(path: str, tmp_path: Path) -> str:
    return f"{tmp_path}{path}" if path == ABSOLUTE else path


def rule(path: str, text: str | None) -> RuleFile:
    """Past the model, which is the first that refuses."""
    return RuleFile.model_construct(path=path, text=text)


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    """Two folders of rules in a proposal's, with the console's database above them, and a link that leads there."""
    (tmp_path / "console.db").write_text("all users")
    roots = [tmp_path / "proposal" / name for name in ("0", "1")]
    for root in roots:
        root.mkdir(parents=True)
        (root / "out").symlink_to(tmp_path)
    (roots[1] / "old.yml").write_text("title: old")
    return roots


@pytest.mark.parametrize("text", [None, "title: x"])
@pytest.mark.parametrize("path", HOSTILE)
def test_a_proposal_stays_in_its_folder(roots: list[Path], tmp_path: Path, path: str, text: str | None) -> None:
    """A file that is removed is checked like one that is written: refused, and nothing is touched."""
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(Problem) as refused:
        over(roots, [rule(absolute(path, tmp_path), text)])
    assert refused.value.status == 422
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "console.db").read_text() == "all users"


def test_a_proposal_removes_and_writes_rules(roots: list[Path]) -> None:
    """Where the file is, else in the first folder; one that is not there is removed already."""
    files = [rule("old.yml", None), rule("new/x.yml", "title: x"), rule("gone.yml", None)]
    assert over(roots, files) == [roots[0] / "new" / "x.yml"]
    assert not (roots[1] / "old.yml").exists()
    (roots[1] / "old.yml").write_text("title: old")
    assert over(roots, [rule("old.yml", "title: newer")]) == [roots[1] / "old.yml"]
    assert (roots[1] / "old.yml").read_text() == "title: newer"


@pytest.mark.parametrize("path", HOSTILE)
def test_rules_that_are_tried_stay_in_their_folder(roots: list[Path], tmp_path: Path, path: str) -> None:
    """Those of a backtest, a hunt, the editor."""
    with pytest.raises(Problem) as refused:
        write_rules({absolute(path, tmp_path): "title: x"}, roots[0])
    assert refused.value.status == 422
    assert (tmp_path / "console.db").read_text() == "all users"


@pytest.mark.parametrize("path", HOSTILE)
def test_a_bundle_lies_below_fleet_toml(tmp_path: Path, path: str) -> None:
    """A proposal of a bundle that is there names no file outside, with the right ending either."""
    (tmp_path / "fleet").mkdir()
    (tmp_path / "fleet" / "out").symlink_to(tmp_path)
    for named in (path, f"{path}/x.vbundle", f"{path}.vbundle"):
        if named in (".vbundle", "..vbundle", "...vbundle"):  # names like others
            continue
        with pytest.raises(Problem) as refused:
            _below(tmp_path / "fleet" / "fleet.toml", named)
        assert refused.value.status == 422


@pytest.mark.parametrize("path", [*(path for path in HOSTILE if path != LINKED), ".hidden.yml", "a/.hidden.yml"])
def test_models_refuse_paths(path: str) -> None:
    """Before anything is done: a request with such a path is answered by 422."""
    for text in (None, "title: x"):
        with pytest.raises(ValidationError):
            RuleFile(path=path, text=text)


@pytest.mark.parametrize("name", ["..", ".", "", ".a", "a/b", "../a", "a\0", "a\n", "x" * 129])
def test_models_refuse_names(name: str) -> None:
    """Groups, sets of rules, agents and alerts have names that are file names."""
    rules: list[dict[str, Any]] = [{"path": "x.yml", "text": ""}]
    with pytest.raises(ValidationError):
        Proposal.model_validate({"rules": rules, "group": name, "reason": "case 17"})
    with pytest.raises(ValidationError):
        Proposal.model_validate({"rules": rules, "group": "all", "ruleset": name, "reason": "case 17"})
    order = {"alert": "0" * 32, "agent": "a1", "day": "2026-11-22", "reason": "case 17"}
    for key in ("alert", "agent"):
        with pytest.raises(ValidationError):
            EvidenceOrder.model_validate({**order, key: name})
