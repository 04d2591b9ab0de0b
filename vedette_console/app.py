"""The console put together: its store, its layers, its routes, and the services that run beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pkgutil import resolve_name
from urllib.parse import quote

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

from vedette.system.terminal import safe
from vedette_console import views
from vedette_console.hub import Hub
from vedette_console.middleware import Guard
from vedette_console.security.limits import Attempts
from vedette_console.security.oidc import Provider
from vedette_console.security.passwords import Passwords
from vedette_console.services import SERVICES
from vedette_console.settings import Settings
from vedette_console.store.database import Unavailable
from vedette_console.store.store import Store, open_store
from vedette_console.web import ERRORS, Problem

API = "/api/v1"
THREADS = 16
_log = structlog.get_logger(__name__)


def create(settings: Settings, store: Store | None = None) -> FastAPI:
    """The application, its services started by its lifespan. ``store``: one that is open already, which stays open.

    ``app.state``: ``settings``, ``store``, ``hub`` (``publish``), ``attempts`` (at logins), and what ``services`` adds.
    Raises what ``open_store`` raises.
    """
    opened = store if store is not None else open_store(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as running:
            if store is None:
                running.callback(opened.close)
            # For what routes ask of the store; the tables are read by threads of their own.
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "store"))
            running.callback(app.state.passwords.close)
            running.callback(app.state.hub.close)
            for service in SERVICES:
                await running.enter_async_context(service(app))
            yield

    app = FastAPI(
        title="Vedette console", version="1", description=_ABOUT, openapi_url=f"{API}/openapi.json", docs_url=None,
        redoc_url=None, lifespan=lifespan, generate_unique_id_function=lambda route: route.name,
        swagger_ui_oauth2_redirect_url=None,
    )  # fmt: skip
    app.state.settings, app.state.store = settings, opened
    app.state.hub = Hub(settings.limits)
    app.state.passwords = Passwords()
    app.state.oidc = Provider(settings) if settings.oidc else None
    app.state.attempts = Attempts(settings.limits.login_failures, settings.limits.login_window)
    app.state.paths = []
    for names, prefix, options in ((views.API, API, {"responses": ERRORS}),
                                   (views.PAGES, "", {"include_in_schema": False})):  # fmt: skip
        for name in names:
            router = resolve_name(f"vedette_console.{name}")
            app.include_router(router, prefix=prefix, **options)
            app.state.paths += [(compile_path(prefix + route.path)[0], route.methods) for route in router.routes]
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    app.add_middleware(Guard, settings=settings, store=opened)
    return app


_ABOUT = (
    "Everything that the console shows and does. Send `Authorization: Bearer TOKEN` with a token of the page Settings. "
    "Times are ISO 8601 in UTC. An error is an object of `error`, `where` and `what_to_do`. Lists are "
    "pages: send `next` as `after` for more."
)


def _show(request: Request, problem: Problem) -> Response:
    """An error as its reader takes it: an object below ``/api``, a page else."""
    request.state.problem = problem.body
    if request.url.path.startswith("/api/"):
        return JSONResponse(problem.body.model_dump(), problem.status, problem.headers)
    if problem.status == 401 and request.method == "GET":
        back = quote(request.url.path) + (f"?{request.url.query}" if request.url.query else "")
        if "hx-request" in request.headers:
            return Response(status_code=401, headers={"HX-Redirect": "/login"})
        return RedirectResponse(f"/login?next={quote(back, safe='')}", 303)
    shown: Response = resolve_name("vedette_console.pages.render:error_page")(request, problem)
    return shown


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return _show(request, error)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    texts = {404: "there is nothing at this address", 405: "this address does not take that method"}
    text = texts.get(error.status_code, str(error.detail))
    headers = dict(error.headers or {})
    if error.status_code == 405:
        path = request.url.path
        methods = {method for pattern, names in request.app.state.paths if pattern.match(path) for method in names}
        headers["Allow"] = ", ".join(sorted(methods))
    return _show(request, Problem(error.status_code, text, headers=headers))


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = safe(".".join(str(part) for part in first["loc"] if part != "body") or "body")
    return _show(request, Problem(422, f"{where}: {first['msg']}"[:500], where=where[:200],
                                  what_to_do="see /api/v1/openapi.json for what is expected"))  # fmt: skip


async def _unavailable(request: Request, error: Exception) -> Response:
    _log.error("the console's database failed", error=str(error))
    return _show(request, Problem(503, "the console's database does not answer", what_to_do="try again; see the log"))


async def _failed(request: Request, error: Exception) -> Response:
    """Logged as a whole by uvicorn; nothing of it is shown."""
    return _show(request, Problem(500, "the console failed at this; its log says why"))


_HANDLERS: dict[int | type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
    Problem: _problem,
    HTTPException: _http,
    RequestValidationError: _invalid,
    Unavailable: _unavailable,
    Exception: _failed,
}
