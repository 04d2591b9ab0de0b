"""Tokens by which hosts enrol: how often, how long, and what the file remembers."""

from __future__ import annotations

from pathlib import Path

import pytest

from vedette.fleet.enrolment import EnrolmentRefused
from vedette.region.tokens import Tokens


def test_a_token_is_for_so_many_agents(tmp_path: Path) -> None:
    """Each may come again, one more is refused; what was used is remembered by whoever reads the file next."""
    grant = Tokens(tmp_path).create("plants", uses=2, seconds=60, labels={}, now=1000)
    for name in ("a", "b", "a"):
        tokens = Tokens(tmp_path)
        tokens.find(grant.id).check(name, 1001)
        tokens.spend(grant.id, name)
    with pytest.raises(EnrolmentRefused, match="used up"):
        Tokens(tmp_path).find(grant.id).check("c", 1001)


def test_a_token_from_the_future(tmp_path: Path) -> None:
    """One that was made while the clock was ahead has expired when it is set right; five minutes are no fault."""
    grant = Tokens(tmp_path).create("plants", uses=2, seconds=60, labels={}, now=10_000)
    grant.check("a", 9_700)
    with pytest.raises(EnrolmentRefused, match="expired"):
        grant.check("a", 9_699)


@pytest.mark.parametrize("site", ["", "New York", ".", "a/b"])
def test_a_site_that_is_none(tmp_path: Path, site: str) -> None:
    """No token is made whose members would be at a site that nobody could be let see."""
    with pytest.raises(ValueError, match=r"site .*: expects"):
        Tokens(tmp_path).create("plants", uses=1, seconds=60, labels={"site": site}, now=1000)
    assert not Tokens(tmp_path).grants


def test_a_token_that_ended(tmp_path: Path) -> None:
    """At its time, or when it is revoked, nobody enrols by it any more, not even who did before."""
    tokens = Tokens(tmp_path)
    grant = tokens.create("plants", uses=2, seconds=60, labels={}, now=1000)
    tokens.spend(grant.id, "a")
    grant.check("a", 1059)
    with pytest.raises(EnrolmentRefused, match="expired"):
        grant.check("a", 1060)
    tokens.revoke(grant.id, 1001)
    with pytest.raises(EnrolmentRefused, match="revoked"):
        Tokens(tmp_path).find(grant.id).check("a", 1002)
