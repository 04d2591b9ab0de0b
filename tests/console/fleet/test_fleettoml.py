"""One change to fleet.toml: the bundle of a group, and nothing else; comments and order stay."""

from __future__ import annotations

import tomllib

import pytest

from vedette_console.fleet.fleettoml import with_bundle

TEXT = """\
# our fleet
[[ring]]
name = "canary"   # first
agents = 1

[[group]]
name = "vienna"
match = "site = vienna"
bundle = "bundles/1.vbundle"  # signed by carol
windows = [
  { days = ["sat"], start = "22:00", end = "04:00" },
]

[[group]]
name = "linz"
bundles = { site = "bundles/s-1.vbundle", other = 'bundles/o.vbundle' }

[[group]]
name = "graz"
[group.bundles]
site = "bundles/s-1.vbundle"

[[group]]
name = "rest"
"""


@pytest.mark.parametrize(
    ("group", "ruleset", "before", "after"),
    [
        ("vienna", "default", 'bundle = "bundles/1.vbundle"  # signed', 'bundle = "new"  # signed'),
        ("linz", "site", '{ site = "bundles/s-1.vbundle",', '{ site = "new",'),
        ("linz", "other", "other = 'bundles/o.vbundle'", 'other = "new"'),
        ("linz", "third", '{ site = "bundles/s-1.vbundle",', '{ third = "new", site = "bundles/s-1.vbundle",'),
        ("linz", "default", 'name = "linz"\n', 'name = "linz"\nbundle = "new"\n'),
        ("graz", "site", '[group.bundles]\nsite = "bundles/s-1.vbundle"', '[group.bundles]\nsite = "new"'),
        ("rest", "default", 'name = "rest"\n', 'name = "rest"\nbundle = "new"\n'),
        ("rest", "site", 'name = "rest"\n', 'name = "rest"\nbundles = { site = "new" }\n'),
    ],
)
def test_only_that(group: str, ruleset: str, before: str, after: str) -> None:
    """The text is the same but for it."""
    changed = with_bundle(TEXT, group, ruleset, "new")
    assert changed == TEXT.replace(before, after, 1)
    tomllib.loads(changed)
    assert with_bundle(changed, group, ruleset, "new") == changed


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TEXT, "no groups are called oslo"),
        ('[[group]]\nname = "oslo"\n[[group]]\nname = "oslo"\n', "2 groups"),
        ('group = [{ name = "oslo", bundle = "a" }]\n', "by hand|there"),
        ("x =", "Invalid"),
    ],
)
def test_what_is_left_to_people(text: str, why: str) -> None:
    """Where the text is not of the usual form, nothing is guessed."""
    with pytest.raises(ValueError, match=why):
        with_bundle(text, "oslo", "default", "new")
