"""Who one is, and how one likes the console."""

from __future__ import annotations

from pathlib import Path

from tests.console.kit import console


def test_me(tmp_path: Path) -> None:
    """It names one's role, what one may, and the CSRF token."""
    with console(tmp_path) as served:
        ann = served.as_user("ann", "analyst", site="vienna")
        me = ann.get("/api/v1/me").json()
        assert (me["name"], me["kind"], me["role"]) == ("ann", "user", "analyst")
        assert me["grants"] == [{"role": "analyst", "fleet": "*", "site": "vienna"}]
        assert "triage" in me["acts"]
        assert "users" not in me["acts"]
        assert me["csrf"] == ann.headers["x-csrf-token"]
        assert served.client().get("/api/v1/me").status_code == 401


def test_preferences(tmp_path: Path) -> None:
    """They are kept; nonsense is refused with its place."""
    with console(tmp_path) as served:
        ann = served.as_user("ann", "viewer")
        assert ann.put("/api/v1/me/preferences", json={"theme": "dark", "time_zone": "Europe/Vienna"}).json() == {
            "done": True
        }
        assert ann.get("/api/v1/me").json()["preferences"] == {"theme": "dark", "time_zone": "Europe/Vienna"}
        refused = ann.put("/api/v1/me/preferences", json={"theme": "pink"})
        assert refused.status_code == 422
        assert refused.json()["where"] == "theme"
