"""Each page: with an ordinary day, with an attacker's texts, with nothing; for each role; and its parts for htmx."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.console.kit import Console
from tests.console.pages.markup import mistakes, tags
from tests.console.pages.places import OF_TABLES, PAGES, places
from vedette_console.pages import assets

MOST = 200_000
"""Bytes of a page and all that it loads, unpacked."""
STATUS = {"a mistake in a search": 400, "nowhere": 404}


def weight(page: str) -> int:
    """Bytes of a page with what it loads."""
    named = {
        match.rpartition(f"{assets.version()}/")[2] for match in re.findall(r'(?:href|src)="(/static/[^"]+)"', page)
    }
    scripts = {name for name in assets.files() if name.endswith(".js") and "/" not in name and name != "login.js"}
    scripts -= {"editor.js"} if "editor-form" not in page else set()
    return len(page.encode()) + sum(len(assets.files()[name]) for name in named | scripts)


def looked_at(client: Any, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status, (path, answer.status_code, answer.text[-600:])
    assert list(mistakes(answer.text)) == [], path
    assert weight(answer.text) < MOST, (path, weight(answer.text))
    assert "no-store" in answer.headers["cache-control"]
    return str(answer.text)


@pytest.mark.parametrize("kind", [pytest.param("plain", marks=pytest.mark.long), "hostile"])
def test_every_page(kind: str, request: pytest.FixtureRequest) -> None:
    """Each is well-formed, small, accessible by its markup, and runs nothing of what logs, rules or labels say."""
    console: Console = request.getfixturevalue(kind)
    client = console.session("root")
    for name, path in places(console).items():
        text = looked_at(client, path, STATUS.get(name, 200))
        assert "<script>alert" not in text
        assert "onerror=alert" not in re.sub(r"&\w+;|&#\d+;", "", " ".join(a for _, b in tags(text) for a in b)), path


def test_nothing_there(nothing: Console) -> None:
    """Without tables and without a broker each page says what to do, and what is not there is a 404."""
    client = nothing.session("root")
    for name, path in PAGES.items():
        if name in OF_TABLES:
            answer = client.get(path)
            assert answer.status_code in (404, 422, 503), (path, answer.status_code)
            assert list(mistakes(answer.text)) == []
        elif name != "a mistake in a search":
            text = looked_at(client, path, STATUS.get(name, 200))
            if name in ("now", "alerts", "campaigns", "entities", "fleet", "roll-outs", "rules", "hunts", "reports"):
                assert "vedette" in text.partition('class="empty')[2], f"{path} names no command"


def test_a_wrong_search_says_what_to_write(plain: Console) -> None:
    """Beside the box, with the column."""
    text = plain.session("root").get("/alerts", params={"q": "level:critical sitee:x"}).text
    assert 'id="q-problem"' in text
    assert "column 16" in text
    assert 'value="level:critical sitee:x"' in text


def test_login(plain: Console) -> None:
    """Whoever is not logged in is sent there and comes back; never to another host."""
    client = plain.client()
    answer = client.get("/campaigns?state=open")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login?next=%2Fcampaigns%3Fstate%3Dopen"
    blank = client.get("/entities/user/John%20Doe").headers["location"]
    assert 'data-then="go /entities/user/John%20Doe"' in client.get(blank).text
    text = client.get(answer.headers["location"]).text
    assert 'data-then="go /campaigns?state=open"' in text
    assert list(mistakes(text)) == []
    for foreign in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/login"):
        assert 'data-then="go /"' in client.get("/login", params={"next": foreign}).text
    assert plain.session("root").get("/login", params={"next": "/rules"}).headers["location"] == "/rules"


def test_a_one_time_link_is_used_by_a_press_only(plain: Console) -> None:
    """Reading it, as mail scanners do, leaves it good."""
    secret = plain.store.sessions.offer("root")
    client = plain.client()
    for _ in range(2):
        text = client.get("/login/once", params={"token": secret}).text
        assert f'value="{secret}"' in text
        assert list(mistakes(text)) == []
    assert client.post("/api/v1/login/once", json={"token": secret}).status_code == 200


@pytest.mark.parametrize("role", ["viewer", "analyst", "operator", "admin"])
def test_roles(plain: Console, role: str) -> None:
    """Pages offer what one may, and say what is needed for the rest."""
    client, places_ = plain.as_user(f"a-{role}", role), places(plain)
    rank = ["viewer", "analyst", "operator", "admin"].index(role)
    assert ("/triage" in client.get(places_["alert"]).text) == (rank >= 1)
    assert ("POST /api/v1/evidence" in client.get(places_["alert"]).text) == (rank >= 1)
    assert ("POST /api/v1/hunts" in client.get("/hunts").text) == (rank >= 1)
    assert client.get("/rules/new").status_code == (200 if rank >= 1 else 403)
    assert ('href="/users"' in client.get("/help").text) == (rank >= 3)
    assert client.get("/users").status_code == client.get("/audit").status_code == (200 if rank >= 3 else 403)


def test_sites_of_others_are_not_shown(plain: Console) -> None:
    """Who sees one site sees its alerts alone."""
    client = plain.as_user("vienna-only", "viewer", "plants", "vienna")
    text = client.get("/alerts").text
    assert "web0.vienna" in text
    assert "lisbon" not in text


def test_the_fleet_is_there_without_a_filter(plain: Console) -> None:
    """All agents; an empty group asks for those in none."""
    client = plain.session("root")
    assert client.get("/fleet").text.count('data-row="plants/edge-') == 12
    assert 'data-row="plants/edge-' not in client.get("/fleet", params={"group": ""}).text


def test_first_things_are_in_the_viewers_time(plain: Console) -> None:
    """From when to when, in the zone that the page names, as all its other times."""
    texts = {}
    for zone in ("UTC", "Asia/Kolkata"):
        client = plain.session("root")
        client.cookies.set("tz", zone)
        shown = client.get("/").text.partition('<ol class="first">')[2].partition("</ol>")[0]
        texts[zone] = re.findall(r'<time datetime="([^"]+)"[^>]*>([^<]+)</time>', shown)
    assert texts["UTC"]
    assert [at for at, _ in texts["UTC"]] == [at for at, _ in texts["Asia/Kolkata"]]
    assert all(first != second for (_, first), (_, second) in zip(*texts.values(), strict=True))


def test_live_parts(plain: Console) -> None:
    """htmx gets the part that it asks for, and nothing else."""
    client = plain.session("root")
    parts = [("/", "now"), ("/", "now-more"), ("/alerts", "results"), ("/fleet", "agents"), ("/hunts", "list")]
    parts += [("/rollouts", "list"), ("/campaigns", "list"), ("/reports", "list"), (places(plain)["alert"], "evidence")]
    parts += [(PAGES["agent"], "agent"), (PAGES["roll-out"], "change"), (PAGES["hunt"], "hunt")]
    parts += [(PAGES["backtest"], "backtest")]
    for path, part in parts:
        whole = client.get(path).text
        assert re.search(rf'id="{part}"[^>]*data-live=', whole), (path, part)
        text = client.get(path, headers={"HX-Request": "true", "HX-Target": part}).text
        assert text.count(f'id="{part}"') == 1
        assert "<nav id=" not in text
        assert "<html" not in text


def test_counted_parts(plain: Console) -> None:
    """The page of alerts does not wait for what counts all of them: its bars and facets come as parts of their own."""
    client = plain.session("root")
    for path in ("/alerts", "/alerts?q=level%3Acritical"):
        whole = client.get(path).text
        for part, inside in (("bars", 'class="chart"'), ("facets", "<h3>level</h3>")):
            asked = re.search(rf'id="{part}"[^>]*hx-get="([^"]+)"', whole)
            assert asked
            assert inside not in whole
            text = client.get(asked[1].replace("&amp;", "&"), headers={"HX-Request": "true", "HX-Target": part}).text
            assert text.count(f'id="{part}"') == 1
            assert inside in text
            assert "hx-get" not in text


def test_static_files(plain: Console) -> None:
    """They are kept by browsers, small, and nothing else of the folder or above it is served."""
    client = plain.client()
    for name, content in assets.files().items():
        answer = client.get(assets.url(name))
        assert answer.content == content
        assert "immutable" in answer.headers["cache-control"]
        assert len(content) < 100_000
        assert name.endswith((".css", ".svg")) or answer.headers["content-type"].startswith("text/javascript")
    assert "immutable" not in client.get("/static/old/app.js").headers["cache-control"]
    for path in ("/static/x/../../render.py", "/static/x/%2e%2e/%2e%2e/render.py", "/static/x/nothing.js"):
        assert client.get(path).status_code == 404


def test_scripts_do_without_eval() -> None:
    """No module evaluates text, writes HTML from text, or uses a handler attribute."""
    for name, content in assets.files().items():
        if name.endswith(".js") and not name.startswith("vendor/"):
            assert not re.search(
                rb"\beval\(|new Function|innerHTML|outerHTML =|insertAdjacentHTML|document\.write", content
            ), name
