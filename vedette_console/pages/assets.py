"""Style, script and pictures of the pages: ``/static/VERSION/NAME``, kept by browsers for a year.

The version is a digest of all of them, so a page never meets a file of another release, and modules find each other by
relative names. htmx is Zero-Clause BSD; its licence lies beside it.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import Response

FOLDER = Path(__file__).parent / "static"
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

router = APIRouter()


@cache
def files() -> dict[str, bytes]:
    """All of them by name, read once; nothing else is ever served from the folder."""
    paths = (path for path in sorted(FOLDER.rglob("*")) if path.suffix in TYPES)
    return {path.relative_to(FOLDER).as_posix(): path.read_bytes() for path in paths}


@cache
def version() -> str:
    digest = hashlib.sha256()
    for name, content in files().items():
        digest.update(f"{name} {len(content)} ".encode() + content)
    return digest.hexdigest()[:12]


def url(name: str) -> str:
    """The address of the file. Raises KeyError for one that is not there."""
    files()[name]
    return f"/static/{version()}/{name}"


@router.get("/static/{release}/{name:path}")
def show_static(release: str, name: str) -> Response:
    """A file, whatever release is asked for; only the present one is cached for long."""
    content = files().get(name)
    if content is None:
        return Response("there is no such file", 404, media_type="text/plain")
    cached = "public, max-age=31536000, immutable" if release == version() else "no-cache"
    return Response(content, media_type=TYPES[Path(name).suffix], headers={"Cache-Control": cached})


@router.get("/favicon.ico")
def show_icon() -> Response:
    """The icon, for browsers that ask without reading the page."""
    return Response(files()["icon.svg"], media_type="image/svg+xml", headers={"Cache-Control": "max-age=86400"})
