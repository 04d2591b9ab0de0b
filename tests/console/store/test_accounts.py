"""Users, sessions and one-time links, tokens, searches."""

from __future__ import annotations

import pytest

from vedette.system.wallclock import utc_now
from vedette_console.security.principal import Grant, Role
from vedette_console.settings import Sessions as Times
from vedette_console.store.accounts import Accounts, LastAdmin
from vedette_console.store.database import Conflict, Database
from vedette_console.store.saved import MAX_SEARCHES, Choices, Searches
from vedette_console.store.sessions import MAX_TOKENS, Sessions, Tokens

SECOND = 1_000_000
ADMIN, VIEWER = Grant(Role.ADMIN), Grant(Role.VIEWER)


def test_users(database: Database) -> None:
    """They are added, granted, disabled and removed by name; a bad or taken name is refused."""
    accounts = Accounts(database)
    accounts.add("root", [ADMIN])
    ann = accounts.add(
        "ann", [VIEWER, Grant(Role.OPERATOR, "plants", "vienna"), Grant(Role.ANALYST, "plants", "vienna")]
    )
    assert set(ann.grants) == {VIEWER, Grant(Role.OPERATOR, "plants", "vienna")}
    with pytest.raises(Conflict):
        accounts.add("ann", [])
    for name in ("", "a b", "-a", "a" * 65, "a\0", "ü", "a/b"):
        with pytest.raises(ValueError, match="a user's name"):
            accounts.add(name, [])
    with pytest.raises(ValueError, match="a grant is for"):
        accounts.grant("ann", [Grant(Role.VIEWER, "x'--", "*")])
    assert accounts.grant("ann", [Grant(Role.VIEWER, "a", "b")]).grants == (Grant(Role.VIEWER, "a", "b"),)
    assert accounts.disable("ann", True).disabled
    accounts.prefer("ann", {"theme": "dark"})
    assert accounts.get("ann").preferences == {"theme": "dark"}
    assert [user.name for user in accounts.all()] == ["ann", "root"]
    accounts.remove("ann")
    for act in (accounts.get, accounts.remove):
        with pytest.raises(KeyError):
            act("ann")


def test_the_last_admin(database: Database) -> None:
    """Can neither be removed nor disabled nor lowered; an admin of one fleet does not count."""
    accounts = Accounts(database)
    accounts.add("root", [ADMIN])
    accounts.add("ann", [Grant(Role.ADMIN, "plants")])
    for act in (
        lambda: accounts.remove("root"),
        lambda: accounts.disable("root", True),
        lambda: accounts.grant("root", [VIEWER]),
    ):
        with pytest.raises(LastAdmin):
            act()
    assert accounts.get("root").grants == (ADMIN,)
    accounts.grant("ann", [ADMIN])
    accounts.remove("root")


def test_an_admin_of_the_provider(database: Database) -> None:
    """Counts as one while the provider says so; as the last one they stay it, whatever it says."""
    accounts = Accounts(database)
    accounts.add("root", [ADMIN])
    accounts.add("ann", [ADMIN], subject="provider ann")
    assert accounts.set_role("ann", Role.VIEWER).grants == (VIEWER,)
    with pytest.raises(LastAdmin):
        accounts.remove("root")
    accounts.grant("ann", [ADMIN])
    assert accounts.get("ann").grants == (VIEWER,), "the provider's role caps it at once"
    with pytest.raises(LastAdmin):
        accounts.remove("root")
    accounts.set_role("ann", None)
    accounts.remove("root")
    with pytest.raises(LastAdmin):
        accounts.set_role("ann", Role.OPERATOR)
    assert accounts.get("ann").grants == (ADMIN,)


def test_the_providers_role_again(database: Database) -> None:
    """What an admin granted is kept under the provider's cap, and gives way to it where an admin says so."""
    accounts = Accounts(database)
    accounts.add("root", [ADMIN])
    accounts.add("ann", [VIEWER], subject="provider ann")
    accounts.set_role("ann", Role.VIEWER)
    granted = (Grant(Role.OPERATOR, "plants", "vienna"),)
    ann = accounts.grant("ann", granted)
    assert (ann.granted, ann.grants, ann.follows) == (granted, (Grant(Role.VIEWER, "plants", "vienna"),), False)
    assert accounts.set_role("ann", Role.ANALYST).granted == granted
    ann = accounts.follow("ann", True)
    assert (ann.grants, ann.follows) == ((Grant(Role.ANALYST),), True)
    assert accounts.set_role("ann", Role.OPERATOR).grants == (Grant(Role.OPERATOR),)
    assert not accounts.follow("ann", False).follows
    assert accounts.set_role("ann", Role.ADMIN).grants == (Grant(Role.OPERATOR),)
    with pytest.raises(ValueError, match="no user of the OpenID provider"):
        accounts.follow("root", True)


def test_the_first_admin(database: Database) -> None:
    """Is made once, whatever other users there are."""
    accounts = Accounts(database)
    accounts.add("admin", [VIEWER])
    first = accounts.first()
    assert first is not None
    assert (first.name, first.grants) == ("admin-2", (ADMIN,))
    assert accounts.first() is None


def test_sessions_end(database: Database) -> None:
    """After a time without a request, after a time in any case, and when they are ended."""
    Accounts(database).add("ann", [VIEWER])
    sessions = Sessions(database, Times(idle=100, absolute=1_000))
    cookie = sessions.start("ann", address="192.0.2.1", browser="x" * 500)
    (session,) = sessions.of("ann")
    begun = session.created
    assert len(session.browser) == 200
    assert sessions.check(cookie, begun + 99 * SECOND) == "ann"
    assert sessions.check(cookie, begun + 198 * SECOND) == "ann", "a request makes it last"
    assert sessions.check(cookie, begun + 299 * SECOND) is None
    for step in range(2, 16):
        sessions.check(cookie, begun + step * 66 * SECOND)
    assert sessions.check(cookie, begun + 990 * SECOND) == "ann"
    assert sessions.check(cookie, begun + 1_001 * SECOND) is None
    other = sessions.start("ann")
    sessions.end(other)
    assert sessions.check(other) is None
    assert sessions.check("") is None


def test_all_sessions_of_a_user(database: Database) -> None:
    """They can be ended but one, or one by its id; a removed user has none."""
    accounts = Accounts(database)
    accounts.add("root", [ADMIN])
    accounts.add("ann", [VIEWER])
    sessions = Sessions(database, Times())
    here, there, elsewhere = (sessions.start("ann") for _ in range(3))
    assert sessions.end_all("ann", but=here) == 2
    assert [sessions.check(session) for session in (here, there, elsewhere)] == ["ann", None, None]
    assert not sessions.end_one("root", sessions.of("ann")[0].id)
    assert sessions.end_one("ann", sessions.of("ann")[0].id)
    again = sessions.start("ann")
    accounts.remove("ann")
    assert sessions.check(again) is None


def test_secrets_are_not_stored(database: Database) -> None:
    """Neither cookies nor one-time links nor tokens stand in the database."""
    Accounts(database).add("ann", [VIEWER])
    sessions = Sessions(database, Times())
    secrets = [sessions.start("ann"), sessions.offer("ann"), Tokens(database).add("ann", "x", [VIEWER])[1]]
    rows = [row for table in ("sessions", "once", "tokens") for row in database.rows(f"SELECT * FROM {table}")]
    assert len(rows) == 3
    assert not [secret for secret in secrets if secret in repr(rows) or secret.removeprefix("vedette_") in repr(rows)]


def test_one_time_links(database: Database) -> None:
    """Each is good once, and for its time."""
    sessions = Sessions(database, Times(once=10))
    token = sessions.offer("ann")
    assert sessions.redeem("another") is None
    assert sessions.redeem(token) == ("ann", False)
    assert sessions.redeem(token) is None
    ends, other = sessions.offer("ann"), sessions.offer("bob")
    assert sessions.end_all("ann") == 0
    assert sessions.redeem(ends) is None, "as with another password"
    assert sessions.redeem(other) == ("bob", False)
    late = sessions.offer("", first=True)
    until = database.first("SELECT until FROM once")
    assert until is not None
    assert sessions.redeem(late, until["until"] + 1) is None
    assert sessions.redeem(late, until["until"] - 1) is None, "used up, also when it was too old"


def test_tokens(database: Database) -> None:
    """They are found by their text until they expire or are revoked, and hold what they were made with."""
    Accounts(database).add("ann", [VIEWER])
    tokens = Tokens(database)
    token, text = tokens.add("ann", "script", [Grant(Role.VIEWER, "plants")], acts=["read", "export"], expires=10**18)
    assert (token.acts, token.grants) == (frozenset({"read", "export"}), (Grant(Role.VIEWER, "plants"),))
    checked = tokens.check(text)
    assert checked is not None
    assert checked.id == token.id
    assert tokens.get(token.id).used is not None
    assert tokens.check(text, 10**18 + 1) is None
    assert tokens.check(text[:-1]) is None
    with pytest.raises(ValueError, match="no act 'fly'"):
        tokens.add("ann", "x", [], acts=["fly"])
    tokens.revoke(token.id)
    assert tokens.check(text) is None
    with pytest.raises(KeyError):
        tokens.revoke(token.id)
    for _ in range(MAX_TOKENS):
        tokens.add("ann", "x", [])
    with pytest.raises(ValueError, match="revoke one"):
        tokens.add("ann", "x", [])


def test_searches(database: Database) -> None:
    """One's own and the shared ones of others; the same name replaces."""
    accounts, searches = Accounts(database), Searches(database)
    for name in ("ann", "bob"):
        accounts.add(name, [VIEWER])
    first = searches.save("ann", "critical", "level:critical")
    assert searches.save("ann", "critical", "level:high", shared=True).id == first.id
    searches.save("ann", "mine", "x")
    assert [(search.name, search.query) for search in searches.of("bob")] == [("critical", "level:high")]
    assert [search.name for search in searches.of("ann")] == ["critical", "mine"]
    searches.remove(first.id)
    assert searches.of("bob") == []
    for number in range(MAX_SEARCHES - 1):
        searches.save("ann", str(number), "x")
    with pytest.raises(ValueError, match="remove one"):
        searches.save("ann", "too many", "x")
    searches.save("ann", "mine", "y")


def test_choices(database: Database) -> None:
    """What is set for all is JSON, and replaced."""
    choices = Choices(database)
    choices.set("banner", "a")
    choices.set("banner", {"b": [1, None]})
    assert choices.all() == {"banner": {"b": [1, None]}}


AHEAD = 365 * 86_400 * SECOND


def test_what_began_while_the_clock_was_ahead(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions, one-time links, tokens that expire and a provider's word of then are over when the clock is set right;
    five minutes are no fault. What never expires stays."""
    right, ahead = utc_now(), utc_now() + AHEAD
    monkeypatch.setattr("vedette_console.store.sessions.utc_now", lambda: ahead)
    monkeypatch.setattr("vedette_console.store.accounts.utc_now", lambda: ahead)
    accounts, sessions, tokens = Accounts(database), Sessions(database, Times()), Tokens(database)
    accounts.add("ann", [VIEWER], subject="provider ann")
    accounts.confirm("ann")
    cookie, link = sessions.start("ann"), sessions.offer("ann")
    _, ends = tokens.add("ann", "ends", [VIEWER], expires=ahead + 90 * 86_400 * SECOND)
    _, stays = tokens.add("ann", "stays", [VIEWER])
    user = accounts.get("ann")
    for now, good in ((ahead, True), (ahead - 299 * SECOND, True), (ahead - 301 * SECOND, False), (right, False)):
        assert (sessions.check(cookie, now) == "ann") is good
        assert (tokens.check(ends, now) is not None) is good
        assert user.confirmed_within(3600, now) is good
        assert tokens.check(stays, now) is not None
    used = {token.label: token.used for token in tokens.of("ann")}
    assert used["stays"] == right, "the last use is when it was, by the clock that is right"
    assert sessions.redeem(link, right) is None
    again = sessions.start("ann")
    monkeypatch.setattr("vedette_console.store.sessions.utc_now", lambda: right - 86_400 * SECOND)
    sessions.start("ann")
    assert sessions.check(again, ahead) == "ann", "a clock that is behind removes no session"


def test_a_session_used_while_the_clock_was_ahead(database: Database) -> None:
    """It is over, too: nobody knows how long it has been idle."""
    Accounts(database).add("ann", [VIEWER])
    sessions = Sessions(database, Times())
    cookie = sessions.start("ann")
    hour = 3600 * SECOND
    assert sessions.check(cookie, utc_now() + 2 * hour) == "ann"
    assert sessions.check(cookie, utc_now()) is None
