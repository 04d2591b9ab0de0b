"""Single sign-on against a real provider: npm's oidc-provider, where it is installed.

``sh tools/npm.sh oidc`` installs it; ``VEDETTE_OIDC_PROVIDER`` names another folder of modules.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx2
import pytest

from tests.broker import own_port
from tests.console.kit import WAIT, Console, console
from vedette_console.security.oidc import CALLBACK
from vedette_console.security.principal import Grant, Role
from vedette_console.settings import Oidc

ROOT = Path(__file__).parents[3]
MODULES = Path(os.environ.get("VEDETTE_OIDC_PROVIDER", ROOT / "build/oidc/node_modules"))
pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(
        not (MODULES / "oidc-provider").is_dir() or shutil.which("node") is None,
        reason="no OpenID provider: sh tools/npm.sh oidc",
    ),
]


@contextmanager
def provider(redirect: str) -> Iterator[str]:
    """The issuer of a running provider that knows the console."""
    command = ["node", str(ROOT / "tests/console/oidc/provider.mjs"), str(MODULES.parent), redirect]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert running.stdout is not None
    try:
        port = next((line.strip() for line in running.stdout if line.strip().isdigit()), "")
        assert port, "the provider did not start"
        yield f"http://127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait(WAIT)
        running.stdout.close()


@contextmanager
def both(folder: Path, **settings: Any) -> Iterator[Console]:
    """A console that knows a provider."""
    port = own_port()
    secret = folder / "secret"
    secret.write_text("a-secret-of-the-tests\n")
    with provider(f"http://127.0.0.1:{port}{CALLBACK}") as issuer:
        options = {"client_id": "vedette", "client_secret_file": secret, **settings}
        with console(folder, port=port, oidc=Oidc(issuer, **options)) as served:
            yield served


class Browser:
    """Follows redirects, and fills in the provider's forms."""

    def __init__(self, served: Console) -> None:
        self.client = served.client()
        self._url = served.url

    def login(self, name: str, then: str = "/api/v1/me") -> httpx2.Response:
        """The answer at which it ends: of the console."""
        answer = self._follow("GET", f"{self._url}/api/v1/login/oidc?next={then}")
        for _ in range(5):
            if "/interaction/" not in str(answer.url):
                return answer
            action = re.search(r'action="([^"]+)"', answer.text)
            prompt = re.search(r'name="prompt" value="([^"]+)"', answer.text)
            assert action is not None
            assert prompt is not None
            fields = {"prompt": prompt[1], "login": name, "password": "x"}
            answer = self._follow("POST", urljoin(str(answer.url), html.unescape(action[1])), fields)
        raise AssertionError("the provider asks without end")

    def _follow(self, method: str, url: str, fields: dict[str, str] | None = None) -> httpx2.Response:
        answer = self.client.request(method, url, data=fields)
        for _ in range(20):
            if not answer.has_redirect_location:
                return answer
            answer = self.client.get(urljoin(str(answer.url), answer.headers["location"]))
        raise AssertionError("redirects without end")


def test_a_login(tmp_path: Path) -> None:
    """Makes a user with the role of the group, known by issuer and subject; the way goes on where it began."""
    with both(tmp_path, roles=(("secops", "analyst"), ("boss", "admin"))) as served:
        browser = Browser(served)
        me = browser.login("secops-ann").json()
        assert (me["name"], me["role"]) == ("ann", "analyst")
        user = served.store.accounts.get("ann")
        assert user.subject == f"{served.settings.oidc.issuer} secops-ann"  # type: ignore[union-attr]
        assert not user.password
        row = served.store.audit.read(act="login", limit=1)[0]
        assert (row.who, row.outcome, row.what["way"]) == ("ann", "done", "Single sign-on")
        assert Browser(served).login("secops-ann").json()["name"] == "ann", "the same user again"
        ways = served.client().get("/api/v1/login/ways").json()
        assert ways == {"password": True, "oidc": "Single sign-on"}


def test_the_provider_decides_the_role(tmp_path: Path) -> None:
    """At each login; who has none does not come in."""
    with both(tmp_path, roles=(("secops", "analyst"),)) as served:
        refused = Browser(served).login("guests-bob")
        assert str(refused.url).endswith("/login?error=no-role")
        assert [user.name for user in served.store.accounts.all()] == ["root"]
        assert "refused: no value of the claim" in served.store.audit.read(act="login", limit=1)[0].outcome
        Browser(served).login("secops-ann")
        served.store.accounts.grant("ann", [Grant(Role.ADMIN)])
        assert Browser(served).login("secops-ann").json()["role"] == "analyst"
        served.store.accounts.disable("ann", True)
        assert str(Browser(served).login("secops-ann").url).endswith("error=disabled")


def test_nobody_becomes_a_local_user(tmp_path: Path) -> None:
    """Whatever name the provider gives: it is another user."""
    with both(tmp_path, default_role="viewer") as served:
        me = Browser(served).login("x-root").json()
        assert (me["name"], me["role"]) == ("root-2", "viewer")


def test_answers_that_were_not_asked_for(tmp_path: Path) -> None:
    """Without the cookie of the browser that began, with another state or without a code, nobody is logged in."""
    with both(tmp_path, default_role="viewer") as served:
        for query in ("", "?code=x&state=y", "?error=access_denied"):
            answer = served.client().get(f"{CALLBACK}{query}")
            assert answer.headers["location"] == "/login?error=expired"
        browser = served.client()
        browser.get("/api/v1/login/oidc")
        for query in ("?code=x&state=y", "?error=access_denied&state=y", "?state=y"):
            answer = browser.get(f"{CALLBACK}{query}")
            assert answer.headers["location"].startswith("/login?error=")
            assert "vedette=" not in answer.headers.get("set-cookie", "")
            browser.get("/api/v1/login/oidc")


def test_a_provider_that_is_away(tmp_path: Path) -> None:
    """Says so on the login page; passwords still work."""
    with console(tmp_path, oidc=Oidc("http://127.0.0.1:1", "vedette")) as served:
        answer = served.client().get("/api/v1/login/oidc")
        assert answer.headers["location"] == "/login?error=unavailable"
    with console(tmp_path) as served:
        assert served.client().get("/api/v1/login/oidc").status_code == 404
