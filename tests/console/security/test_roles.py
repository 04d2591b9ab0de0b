"""Roles: the table of acts, and what a grant gives where."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette_console.security.principal import ACTS, EVERYWHERE, Grant, Principal, Role, Scope, limited

TABLE = {
    "read": "viewer analyst operator admin",
    "export": "viewer analyst operator admin",
    "search.save": "viewer analyst operator admin",
    "tokens.own": "viewer analyst operator admin",
    "triage": "analyst operator admin",
    "evidence": "analyst operator admin",
    "hunt": "analyst operator admin",
    "rules.try": "analyst operator admin",
    "report": "analyst operator admin",
    "rollout.pause": "operator admin",
    "rollout.resume": "operator admin",
    "rollout.abort": "operator admin",
    "rollout.propose": "operator admin",
    "fleet.ask": "operator admin",
    "users": "admin",
    "tokens": "admin",
    "audit.read": "admin",
    "settings": "admin",
}
"""Who may what, everywhere."""


def user(*grants: Grant) -> Principal:
    return Principal("ann", "user", grants)


def test_every_act_is_in_the_table() -> None:
    assert set(TABLE) == set(ACTS)


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("act", ACTS)
def test_each_role_and_each_act(role: Role, act: str) -> None:
    """With a grant on all; at one site everything but acts on the console itself, and nowhere else."""
    allowed = str(role) in TABLE[act].split()
    everywhere, one_site = user(Grant(role)), user(Grant(role, "plants", "vienna"))
    assert everywhere.may(act) == everywhere.may(act, "*", "*") == everywhere.may(act, "any", "where") == allowed
    here = allowed and act not in EVERYWHERE
    assert one_site.may(act) == one_site.may(act, "plants", "vienna") == here
    assert not one_site.may(act, "plants", "graz")
    assert not one_site.may(act, "other", "vienna")
    assert not one_site.may(act, "plants", "*")
    assert not one_site.may(act, "*", "*")


def test_a_grant_on_a_fleet() -> None:
    """Is one on all its sites, and on the fleet as a whole; one on a site of any fleet is not."""
    fleet, site = user(Grant(Role.OPERATOR, "plants")), user(Grant(Role.OPERATOR, "*", "vienna"))
    assert fleet.may("rollout.abort", "plants", "*")
    assert fleet.may("triage", "plants", "graz")
    assert not fleet.may("rollout.abort", "*", "*")
    assert site.may("triage", "plants", "vienna")
    assert not site.may("rollout.abort", "plants", "*")


@pytest.mark.parametrize("place", [("plants", "*"), ("*", "vienna"), ("plants", "vienna")])
def test_the_console_itself_needs_a_grant_on_all(place: tuple[str, str]) -> None:
    assert not any(user(Grant(Role.ADMIN, *place)).may(act) for act in EVERYWHERE)


def test_nobody_may_anything_without_a_grant() -> None:
    assert not any(user().may(act) for act in ACTS)
    assert user().role is None
    assert user().sites() == Scope(False)


def test_an_unknown_act_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        user(Grant(Role.ADMIN)).may("fly")


def test_sites() -> None:
    """The rows that are seen: all, or those of the places where one may."""
    asker = user(Grant(Role.VIEWER, "plants", "vienna"), Grant(Role.ANALYST, "shops"))
    assert asker.sites() == Scope(False, (("plants", "vienna"), ("shops", "*")))
    assert asker.sites("triage") == Scope(False, (("shops", "*"),))
    assert [asker.sites().sees(*place) for place in (("plants", "vienna"), ("shops", "x"), ("plants", "x"))] == [
        True, True, False,
    ]  # fmt: skip
    assert user(Grant(Role.VIEWER), Grant(Role.VIEWER, "a", "b")).sites().all


def test_a_token_has_the_acts_that_it_was_made_for() -> None:
    token = Principal("ann", "token", (Grant(Role.ADMIN),), frozenset({"read"}), "script")
    assert [act for act in ACTS if token.may(act)] == ["read"]
    assert token.sites("triage") == Scope(False)
    assert token.who == "ann (token script)"
    none = Principal("ann", "token", (Grant(Role.ADMIN),), frozenset(), "script")
    assert not any(none.may(act) for act in ACTS)


GRANTS = st.lists(st.builds(Grant, st.sampled_from(Role), st.sampled_from("*ab"), st.sampled_from("*xy")), max_size=4)


@given(GRANTS, GRANTS, st.sampled_from([*ACTS]), st.sampled_from("ab"), st.sampled_from("xy"))
def test_limited_is_what_both_may(wanted: list[Grant], own: list[Grant], act: str, fleet: str, site: str) -> None:
    """At each place one may with the limited grants what one may with both sets of grants; never more."""
    meet = user(*limited(wanted, own))
    assert meet.may(act, fleet, site) == (user(*wanted).may(act, fleet, site) and user(*own).may(act, fleet, site))
    if meet.may(act, "*", "*"):
        assert user(*wanted).may(act, "*", "*")
        assert user(*own).may(act, "*", "*")
