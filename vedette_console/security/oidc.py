"""Single sign-on by OpenID Connect: the authorization code flow with PKCE, state and nonce, by authlib.

What must be remembered between the redirect to the provider and the way back (state, nonce, verifier, where to go
then) is in a cookie of the browser that started, for ``FLOW`` seconds. The provider's answer is believed when its ID
token is signed by the provider's keys, by an algorithm of ``ALGORITHMS``, for this client and this login; all its
addresses are of HTTPS, or of loopback. A person is known by issuer and subject, never by a name: a provider cannot log
anybody in as a user of another origin. Authlib (36 MB) is loaded only where a provider is configured.

The claim that gives roles may lie within others (``realm_access.roles``). What the ID token lacks of it is asked at
UserInfo. Its role holds everywhere; of whom an admin granted something, it caps that (``Accounts.set_role``). Where the
provider says that there are too many groups to list them, a user keeps the role that they have, and who is new is
refused. Who has no role any more is refused, and their sessions and tokens end.
"""

from __future__ import annotations

import base64
import json
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from vedette_console.security.principal import Grant, Role
from vedette_console.settings import Settings, confidential
from vedette_console.store.accounts import Accounts, LastAdmin, User
from vedette_console.store.database import Conflict
from vedette_console.store.store import Store

COOKIE = "vedette_oidc"
FLOW = 600
TIMEOUT = 15.0
CALLBACK = "/api/v1/login/oidc/callback"
ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
"""Whose signatures only the provider can make."""
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri", "userinfo_endpoint")


class Refused(Exception):
    """The provider's answer is not believed, or its user may not come in: ``code`` for the login page, the text for the
    audit log."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Provider:
    """The provider of ``settings.oidc``. Asks it nothing before somebody logs in. Raises OSError when the file of the
    client's secret cannot be read."""

    def __init__(self, settings: Settings) -> None:
        from authlib.integrations.starlette_client import OAuth

        assert settings.oidc is not None
        self.settings = settings.oidc
        self._callback = settings.url + CALLBACK
        self._secure = settings.secure
        secret_file, ca_file = self.settings.client_secret_file, self.settings.ca_file
        self._client = OAuth().register(
            "oidc",
            client_id=self.settings.client_id,
            client_secret=secret_file.read_text().strip() if secret_file else None,
            server_metadata_url=f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration",
            client_kwargs={
                "scope": self.settings.scopes,
                "code_challenge_method": "S256",
                "token_endpoint_auth_method": "client_secret_basic" if secret_file else "none",
                "timeout": TIMEOUT,
                "trust_env": False,
                "verify": ssl.create_default_context(cafile=str(ca_file)) if ca_file else True,
            },
        )

    async def start(self, request: Request, then: str) -> Response:
        """The redirect to the provider; ``then``: the path to go to once logged in. Raises Refused."""
        from authlib.common.errors import AuthlibBaseError
        from httpx2 import HTTPError

        request.scope["session"] = {}
        try:
            await self._believe()
            answer = cast(Response, await self._client.authorize_redirect(request, self._callback))
        except (AuthlibBaseError, HTTPError, ValueError, RuntimeError) as error:
            raise Refused("unavailable", f"the provider does not answer: {error}") from error
        flow = base64.urlsafe_b64encode(json.dumps({"session": request.session, "then": local(then)}).encode()).decode()
        answer.set_cookie(COOKIE, flow, FLOW, path=CALLBACK, secure=self._secure, httponly=True, samesite="lax")
        return answer

    async def finish(self, request: Request) -> tuple[dict[str, Any], str]:
        """The claims of the one who comes back, and the path to go to. Raises Refused."""
        try:
            flow = json.loads(base64.urlsafe_b64decode(request.cookies.get(COOKIE, "").encode()))
            request.scope["session"], then = dict(flow["session"]), local(str(flow["then"]))
        except (ValueError, KeyError, TypeError) as error:
            raise Refused("expired", "the login was not begun in this browser, or too long ago") from error
        try:
            await self._believe()
            token = await self._client.authorize_access_token(request)
            claims = dict(token.get("userinfo") or {})
            if isinstance(claims.get("sub"), str) and self._values(claims) is None and self.settings.roles:
                claims = await self._with_user_info(token, claims)
        except Exception as error:
            # Authlib, httpx2 and what verifies the ID token each raise their own; any of them means: not believed.
            raise Refused("refused", f"the provider's answer: {type(error).__name__}: {error}"[:300]) from error
        if not isinstance(claims.get("sub"), str):
            raise Refused("refused", "the provider sent no ID token")
        return claims, then

    async def _believe(self) -> None:
        """Read the provider's description of itself, and take from it what is safe. Raises ValueError."""
        said = await self._client.load_server_metadata()
        if str(said.get("issuer")).rstrip("/") != self.settings.issuer.rstrip("/"):
            raise ValueError(f"it calls itself {said.get('issuer')!r}, not {self.settings.issuer!r}")
        for name in ENDPOINTS:
            if name in said and not confidential(str(said[name])):
                raise ValueError(f"its {name} {said[name]!r} is not of HTTPS")
        offered = said.get("id_token_signing_alg_values_supported") or ["RS256"]
        safe = [algorithm for algorithm in offered if algorithm in ALGORITHMS]
        said["id_token_signing_alg_values_supported"] = safe
        if not safe:
            raise ValueError(f"it signs by {', '.join(map(str, offered))}; wanted is one of {', '.join(ALGORITHMS)}")

    async def _with_user_info(self, token: Mapping[str, Any], claims: dict[str, Any]) -> dict[str, Any]:
        """The claims, and what UserInfo has besides (OpenID Connect Core, 5.3). Raises ValueError for another
        person's."""
        if "userinfo_endpoint" not in self._client.server_metadata:
            return claims
        more = dict(await self._client.userinfo(token=token))
        if more.get("sub") != claims["sub"]:
            raise ValueError("UserInfo is of another subject than the ID token")
        return {**more, **claims}

    def enter(self, claims: Mapping[str, Any], store: Store) -> User:
        """The user of these claims, made when there is none. Blocking. Raises Refused."""
        subject, accounts = f"{self.settings.issuer} {claims['sub']}", store.accounts
        user, role = accounts.find(subject), self._role(claims)
        if user is not None and user.disabled:
            raise Refused("disabled", f"{user.name} is disabled")
        if self._too_many(claims):
            if user is None:
                raise Refused("too-many", f"the provider lists no {self.settings.claim!r}: there are too many")
            accounts.confirm(user.name)
            return user
        if role is None and (user is None or self.settings.roles):
            if user is not None:
                store.sessions.end_all(user.name)
                store.tokens.revoke_all(user.name)
            raise Refused("no-role", f"no value of the claim {self.settings.claim!r} has a role")
        if user is None:
            assert role is not None
            user = self._new(subject, claims, role, accounts)
        accounts.confirm(user.name)
        with suppress(LastAdmin):
            return accounts.set_role(user.name, role if self.settings.roles else None)
        return user

    def _role(self, claims: Mapping[str, Any]) -> Role | None:
        """The highest that the claim gives."""
        values = self._values(claims) or []
        roles = [Role(role) for value, role in self.settings.roles if value in values]
        if self.settings.default_role:
            roles.append(Role(self.settings.default_role))
        return max(roles, key=lambda role: role.rank, default=None)

    def _values(self, claims: Mapping[str, Any]) -> list[Any] | None:
        """Values of the claim that gives roles, by its name or by its path; None: it is not there."""
        value: Any = claims
        for name in [self.settings.claim] if self.settings.claim in claims else self.settings.claim.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value if isinstance(value, list) or value is None else [value]

    def _too_many(self, claims: Mapping[str, Any]) -> bool:
        """Whether the claim is said to be elsewhere (OpenID Connect Core, 5.6.2), as with many groups."""
        elsewhere = claims.get("_claim_names")
        first = self.settings.claim.partition(".")[0]
        listed = isinstance(elsewhere, Mapping) and not {first, self.settings.claim}.isdisjoint(elsewhere)
        return bool(self.settings.roles) and listed and self._values(claims) is None

    def _new(self, subject: str, claims: Mapping[str, Any], role: Role, accounts: Accounts) -> User:
        wanted = str(claims.get("preferred_username") or claims.get("email") or claims["sub"])
        name = re.sub(r"[^A-Za-z0-9_.@-]+", "-", wanted)[:50].strip(".-@") or "user"
        for attempt in range(1, 100):
            try:
                return accounts.add(name if attempt == 1 else f"{name}-{attempt}", [Grant(role)], subject=subject)
            except Conflict:
                if (user := accounts.find(subject)) is not None:  # who came in twice at once
                    return user
        raise Refused("refused", f"there are too many users of the name {name}")


def local(path: str) -> str:
    """A path of this console; "/" for anything else."""
    good = path.startswith("/") and not path.startswith("//") and path.isprintable() and not {*" \\"} & {*path}
    return path if good and len(path) <= 2_000 else "/"
