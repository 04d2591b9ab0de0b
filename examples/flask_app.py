"""A Flask app that watches its own log: ``flask --app examples/flask_app run``, then log in wrongly three times:
``curl -d user=root -d password=x http://127.0.0.1:5000/login``.

What rules find in it is logged as a warning of ``vedette``. Handlers are called one at a time, as a detector wants it.
"""

from __future__ import annotations

import logging
from typing import Any

from flask import Flask, request

from vedette import Detected, Detection, Detector, compile_rules

RULES = """
title: Login Failed
id: 5f0c2a9e-1b7d-4c5b-9f51-6f5d2c7a9b01
logsource: {category: webserver}
detection:
    login: {cs-method: POST, cs-uri-stem: /login, sc-status: 401}
    condition: login
---
title: Many Logins Failed
id: 5f0c2a9e-1b7d-4c5b-9f51-6f5d2c7a9b02
level: high
correlation:
    type: event_count
    rules: [5f0c2a9e-1b7d-4c5b-9f51-6f5d2c7a9b01]
    group-by: [c-ip]
    timespan: 5m
    condition: {gte: 3}
"""


class Rules(logging.Handler):
    """Evaluates what is logged with ``extra={"event": {…}}``."""

    def __init__(self, rules: str) -> None:
        super().__init__()
        self._detector = Detector(compile_rules(text=rules))
        self._log = logging.getLogger("vedette")

    def emit(self, record: logging.LogRecord) -> None:
        event: dict[str, Any] | None = getattr(record, "event", None)
        if event is not None:
            for found in self._detector.feed([event]):
                self._log.warning("%s: %s", title(found), event)


def title(found: Detected) -> str:
    row = found.to_row("") if isinstance(found, Detection) else found.to_row()
    return str(row["rule_title"])


app = Flask(__name__)
app.logger.setLevel(logging.INFO)
app.logger.addHandler(Rules(RULES))


@app.post("/login")
def login() -> tuple[str, int]:
    return ("welcome", 200) if request.form.get("password") == "correct horse" else ("no", 401)


@app.after_request
def logged(response: Any) -> Any:
    """Names as Sigma's rules on web servers have them."""
    event = {
        "c-ip": request.remote_addr,
        "cs-method": request.method,
        "cs-uri-stem": request.path,
        "sc-status": response.status_code,
        "cs-user-agent": request.user_agent.string,
    }
    app.logger.info("%s %s %d", request.method, request.path, response.status_code, extra={"event": event})
    return response
