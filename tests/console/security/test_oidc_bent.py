"""An OpenID provider that is bent, poor or changes its mind: what is believed of it, and who stays in."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from tests.console.kit import Console, console
from tests.differences import differences
from vedette.system.wallclock import utc_now
from vedette_console.security.oidc import CALLBACK
from vedette_console.security.principal import Grant, Role
from vedette_console.settings import Oidc, Settings

ROLES = (("secops", "analyst"), ("boss", "admin"))
SECRET = "a secret of the tests, which is long enough"
DAY = 86_400_000_000


@cache
def signing_key() -> RSAKey:
    """One for all providers: finding primes takes longer than most tests here."""
    return RSAKey.generate_key(2048, parameters={"kid": "1"})


class Provider:
    """Answers as the test says: ``signs`` by this algorithm, ``lists`` these; ``claims`` are of the ID token, ``info``
    of UserInfo, ``said`` of its description."""

    def __init__(self) -> None:
        self.key = signing_key()
        self.signs, self.lists = "RS256", ["RS256"]
        self.claims: dict[str, Any] = {"sub": "s-1", "preferred_username": "ann"}
        self.info: dict[str, Any] | None = None
        self.said: dict[str, Any] = {}
        self.nonce = self.issuer = ""

    def answer(self, path: str) -> dict[str, Any]:
        if path == "/.well-known/openid-configuration":
            endpoints = {name: f"{self.issuer}/{name}" for name in ("authorization_endpoint", "token_endpoint")}
            more = {"userinfo_endpoint": f"{self.issuer}/userinfo"} if self.info is not None else {}
            return {"issuer": self.issuer, **endpoints, "jwks_uri": f"{self.issuer}/keys", **more,
                    "id_token_signing_alg_values_supported": self.lists, **self.said}  # fmt: skip
        if path == "/keys":
            return {"keys": [self.key.as_dict(private=False)]}
        if path == "/userinfo":
            return self.info or {}
        return {"access_token": "x", "token_type": "Bearer", "id_token": self._token()}

    def _token(self) -> str:
        now = utc_now() // 1_000_000
        claims = {"iss": self.issuer, "aud": "vedette", "iat": now, "exp": now + 600, "nonce": self.nonce,
                  **self.claims}  # fmt: skip
        if self.signs == "none":
            parts = ({"alg": "none", "typ": "JWT"}, claims)
            return (
                ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
                + "."
            )
        if self.signs == "HS256":
            return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(SECRET), algorithms=["HS256"])
        return jwt.encode({"alg": "RS256", "kid": "1"}, claims, self.key)


@contextmanager
def both(folder: Path, **settings: Any) -> Iterator[tuple[Console, Provider]]:
    """A console and its provider."""
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(provider.answer(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        provider.issuer = f"http://127.0.0.1:{server.server_port}"
        secret = folder / "secret"
        secret.write_text(SECRET)
        oidc = Oidc(provider.issuer, "vedette", secret, **{"roles": ROLES, **settings})
        with console(folder, oidc=oidc) as served:
            yield served, provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def login(served: Console, provider: Provider, client: httpx2.Client | None = None) -> str:
    """Where it ends: a path of the console."""
    client = client or served.client()
    begun = client.get("/api/v1/login/oidc").headers["location"]
    if not begun.startswith(provider.issuer):
        return begun
    asked = parse_qs(urlsplit(begun).query)
    provider.nonce = asked["nonce"][0]
    return client.get(f"{CALLBACK}?code=x&state={asked['state'][0]}").headers["location"]


def role(served: Console, name: str = "ann") -> list[str]:
    return [str(grant.role) for grant in served.store.accounts.get(name).grants]


@pytest.mark.parametrize("signs", ["none", "HS256"])
def test_who_signs(tmp_path: Path, signs: str) -> None:
    """A token that anybody can make is not believed, though the provider lists such an algorithm beside a good one."""
    with both(tmp_path) as (served, provider):
        provider.claims["groups"] = ["boss"]
        provider.signs, provider.lists = signs, [signs, "RS256"]
        assert login(served, provider) == "/login?error=refused"
        provider.signs = "RS256"
        assert login(served, provider) == "/"


@pytest.mark.parametrize(
    "said",
    [
        {"id_token_signing_alg_values_supported": ["none", "HS256"]},
        {"issuer": "https://other.example"},
        {"token_endpoint": "http://other.example/token"},
        {"jwks_uri": "http://192.0.2.1/keys"},
    ],
)
def test_what_is_not_safe(tmp_path: Path, said: dict[str, Any]) -> None:
    """Nobody is sent to a provider of whom nothing can be believed."""
    with both(tmp_path) as (served, provider):
        provider.said = said
        assert login(served, provider) == "/login?error=unavailable"


@pytest.mark.parametrize(
    ("issuer", "good"),
    [
        ("https://login.example", True), ("http://127.0.0.1:9", True), ("http://localhost:9/x", True),
        ("http://[::1]:9", True), ("http://login.example", False), ("http://127.0.0.1.example", False),
        ("ftp://login.example", False), ("https://", False),
    ],
)  # fmt: skip
def test_the_issuer(issuer: str, good: bool) -> None:
    settings = Settings("sqlite:x", oidc=Oidc(issuer, "vedette"))
    assert bool([*settings.mistakes()]) != good


def test_groups_at_user_info(tmp_path: Path) -> None:
    """Are asked there when the ID token has none; those of another person are not believed."""
    with both(tmp_path) as (served, provider):
        provider.info = {"sub": "s-1", "groups": ["secops"]}
        assert login(served, provider) == "/"
        assert role(served) == ["analyst"]
        provider.info = {"sub": "s-2", "groups": ["boss"]}
        assert login(served, provider) == "/login?error=refused"
        assert role(served) == ["analyst"]


def test_a_claim_within_others(tmp_path: Path) -> None:
    with both(tmp_path, claim="realm_access.roles") as (served, provider):
        provider.claims["realm_access"] = {"roles": ["x", "secops"]}
        assert login(served, provider) == "/"
        assert role(served) == ["analyst"]
        provider.claims |= {"realm_access": "x", "realm_access.roles": ["boss"]}
        assert login(served, provider) == "/"
        assert role(served) == ["admin"], "a claim that has a dot in its own name"


def test_too_many_groups(tmp_path: Path) -> None:
    """A provider that does not list them leaves a user their role; who is new is refused by that name."""
    with both(tmp_path) as (served, provider):
        provider.claims |= {"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {"endpoint": "https://x"}}}
        assert login(served, provider) == "/login?error=too-many"
        assert "too many" in served.store.audit.read(act="login", limit=1)[0].outcome
        del provider.claims["_claim_names"]
        provider.claims["groups"] = ["boss"]
        assert login(served, provider) == "/"
        del provider.claims["groups"]
        provider.claims["_claim_names"] = {"groups": "src1"}
        assert login(served, provider) == "/"
        assert role(served) == ["admin"]


def test_another_role_at_no_further_place(tmp_path: Path) -> None:
    """Whom no admin granted anything has what the provider says, everywhere. What an admin granted stays, and is capped
    by it: a role that goes down and up again gives back what there was, and no place more."""
    with both(tmp_path, roles=(*ROLES, ("watch", "viewer"))) as (served, provider), differences() as case:
        steps = [(None, "secops", "analyst */*"), (None, "watch", "viewer */*"), ("viewer */*", "boss", "admin */*")]
        for given, *logins in (
            ("analyst plants/vienna,viewer */*", ("secops", "viewer */*,analyst plants/vienna"),
             ("watch", "viewer */*,viewer plants/vienna"), ("secops", "viewer */*,analyst plants/vienna"),
             ("boss", "viewer */*,analyst plants/vienna")),
            ("analyst plants/vienna", ("watch", "viewer plants/vienna"), ("boss", "analyst plants/vienna")),
            ("admin */*,operator plants/linz", ("watch", "viewer */*,viewer plants/linz"),
             ("secops", "analyst */*,analyst plants/linz"), ("boss", "admin */*,operator plants/linz")),
            ("viewer */*", ("watch", "viewer */*"), ("boss", "viewer */*")),
            ("", ("watch", ""), ("boss", "")),
        ):  # fmt: skip
            steps += [(given, *logins[0]), *((None, *login) for login in logins[1:])]
        for given, group, after in steps:
            if given is not None:
                held = [text.replace("/", " ").split() for text in given.split(",") if text]
                served.store.accounts.grant("ann", [Grant(Role(role), fleet, site) for role, fleet, site in held])
            provider.claims["groups"] = [group]
            assert login(served, provider) == "/"
            grants = served.store.accounts.get("ann").grants
            with case(given, group):
                assert ",".join(f"{grant.role} {grant.fleet}/{grant.site}" for grant in grants) == after


def test_who_is_let_go_is_out(tmp_path: Path) -> None:
    """With the first login that is refused, sessions and tokens end; others' stay."""
    with both(tmp_path) as (served, provider):
        provider.claims["groups"] = ["secops"]
        client = served.client()
        assert login(served, provider, client) == "/"
        script, other = served.token("ann", Grant(Role.VIEWER)), served.token("root", Grant(Role.VIEWER))
        assert [user.get("/api/v1/me").status_code for user in (client, script, other)] == [200, 200, 200]
        provider.claims["groups"] = ["guests"]
        assert login(served, provider) == "/login?error=no-role"
        assert [user.get("/api/v1/me").status_code for user in (client, script, other)] == [401, 401, 200]


def test_the_provider_is_asked_again(tmp_path: Path) -> None:
    """A session holds for a day from the last login there, a token for thirty; a login there renews both."""
    with both(tmp_path) as (served, provider):
        provider.claims["groups"] = ["secops"]
        client = served.client()
        assert login(served, provider, client) == "/"
        script, local = served.token("ann", Grant(Role.VIEWER)), served.session("root")

        def answers(days: float) -> list[int]:
            confirmed = utc_now() - round(days * DAY)
            served.store.database.run("UPDATE users SET confirmed = ? WHERE name = 'ann'", confirmed)
            return [user.get("/api/v1/me").status_code for user in (client, script, local)]

        assert answers(0.99) == [200, 200, 200]
        assert answers(1.01) == [401, 200, 200]
        assert answers(30.01) == [401, 401, 200]
        assert login(served, provider) == "/"
        assert [user.get("/api/v1/me").status_code for user in (client, script)] == [200, 200]


def test_no_password_beside_the_provider(tmp_path: Path) -> None:
    """Neither by the user nor by an admin."""
    with both(tmp_path) as (served, provider):
        provider.claims["groups"] = ["boss"]
        assert login(served, provider) == "/"
        words = "several words are good"
        own = served.session("ann").post("/api/v1/me/password", json={"new": words})
        assert (own.status_code, "OpenID" in own.json()["error"]) == (409, True)
        admin = served.session("root").put("/api/v1/users/ann/password", json={"password": words})
        assert (admin.status_code, "OpenID" in admin.json()["error"]) == (422, True)
        assert not served.store.accounts.get("ann").password
