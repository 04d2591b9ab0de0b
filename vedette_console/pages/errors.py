"""An error as a page: what is wrong, and what to do."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import Response

from vedette_console.pages.render import page as render
from vedette_console.web import Problem


def page(request: Request, problem: Problem) -> Response:
    """The page of an error; with its status."""
    return render(request, "error.html.j2", problem.status, problem=problem.body, status=problem.status)
