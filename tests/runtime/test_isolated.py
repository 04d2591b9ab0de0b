"""Which rules of a strict set keep their ids beside those of other sets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.life import AGENT, RULE
from vedette import compile_rules
from vedette.config.settings import Config, RulesetSettings
from vedette.engine.match import Engine
from vedette.runtime.rulesets.isolated import IsolatedPlans

TEXT = RULE.format(word="evil", number=1)
ID = "6a1f0000-0000-4000-8000-000000000001"


@pytest.mark.parametrize(
    ("change", "renamed"),
    [
        (("", ""), False),
        (("\n", "\n\n"), False),
        (("'evil'", "'worse'"), True),
        (("level: low", "level: high"), True),
        (("title: Marker", "title: Other"), True),
        (("attack.t1110", "attack.t1111"), True),
    ],
)
def test_ids(tmp_path: Path, change: tuple[str, str], renamed: bool) -> None:
    """A rule keeps its id only where that of a set before it means and says the same: two alerts of one id would differ
    else, and the region keeps one."""
    config = Config(
        agent=replace(AGENT, data_dir=tmp_path), ruleset=(RulesetSettings(name="site", isolation="strict"),)
    )
    plans = IsolatedPlans(config, ["default", "site"])
    own = Engine(compile_rules(text=TEXT.replace(*change)))
    plans.keep("default", Engine(compile_rules(text=TEXT)))
    plans.keep("site", own)
    plans.of("site", own.plan, "site")
    assert plans.renamed("site") == ({ID: f"{ID}@site"} if renamed else {})
