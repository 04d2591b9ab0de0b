"""Columns of lookups in alerts: which, of which row, and what happens when they cannot be had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.lookup.tables import lookup_of
from vedette.config.settings import EnrichSettings
from vedette.lookup.table import Lookup
from vedette.model.counters import Counters
from vedette.model.event import Alert, Entity, RawRef
from vedette.runtime.alerts.enrich import CUT, MAX_BYTES, MISSING, Enrichment

TIME = 1_700_000_000_000_000


def alert(**more: Any) -> Alert:
    return Alert("a", 1, "r", "Rule", "d", "low", "edge", "s", "f", TIME, TIME, "2023-11-14", "in", "raw",
                 RawRef("log", 0, 3), **more)  # fmt: skip


@pytest.fixture
def assets(tmp_path: Path) -> Lookup:
    rows = [
        ("10.1.2.3", "ann", 7, True, None, None, None),
        ("10.1.2.4", "bob", None, False, 0, None, TIME),
        ("10.1.2.4", "cy", 9, False, TIME, TIME, None),
        ("10.1.2.5", "x" * 5000, 1, False, None, None, None),
    ]
    columns = "ip owner risk:int known:bool seen:time since:time until:time"
    return lookup_of(tmp_path / "assets.vlookup", columns, "ip:ip", rows, valid=("since", "until"))


def enriched(assets: Lookup | None, settings: EnrichSettings, one: Alert, **event: object) -> tuple[Alert, Counters]:
    counters = Counters()
    lookups = {} if assets is None else {"assets": assets}
    return Enrichment([settings], lookups, counters).of(one, event.get), counters


def test_columns_by_field_and_by_entity(assets: Lookup) -> None:
    """The row of the alert's field, of its event's field, or of its first entity that the lookup has, valid at the
    event's time; nulls are left out, a field of the rule stays, and the version is named."""
    at = f"assets@{assets.version[:12]}"
    by_field = EnrichSettings("assets", field="src_ip", columns=("owner", "risk", "known"))
    found, counters = enriched(assets, by_field, alert(fields={"src_ip": "10.1.2.3", "assets.risk": "kept"}))
    assert found.fields == {"src_ip": "10.1.2.3", "assets.risk": "kept", "assets.lookup": at, "assets.owner": "ann",
                            "assets.known": "true"}  # fmt: skip
    assert counters.totals["alerts_enriched"] == 1
    found, _ = enriched(assets, by_field, alert(), src_ip=["10.9.9.9", "10.1.2.4"])
    assert found.fields == {"assets.lookup": at, "assets.owner": "cy", "assets.risk": "9", "assets.known": "false"}
    by_entity = EnrichSettings("assets", key="ip", entity="ip", prefix="a_", columns=("owner", "seen"))
    found, _ = enriched(assets, by_entity, alert(entities=(Entity("user", "10.1.2.3"), Entity("ip", "10.1.2.4"))))
    assert found.fields == {"a_lookup": at, "a_owner": "cy", "a_seen": "2023-11-14T22:13:20Z"}
    before, _ = enriched(assets, by_field, alert(fields={"src_ip": "10.9.9.9"}))
    assert (before.fields, before.flags) == ({"src_ip": "10.9.9.9"}, ())


@pytest.mark.parametrize(
    "settings",
    [EnrichSettings("others", field="src_ip"), EnrichSettings("assets", key="name", field="src_ip"),
     EnrichSettings("assets", field="src_ip", columns=("owner", "gone"))],
)  # fmt: skip
def test_an_alert_without_its_lookup(assets: Lookup, settings: EnrichSettings) -> None:
    """Without the lookup, its key or a column the alert is as it was, flagged, and that is counted."""
    found, counters = enriched(assets, settings, alert(fields={"src_ip": "10.1.2.3"}, flags=("cut",)))
    assert (found.fields, found.flags) == ({"src_ip": "10.1.2.3"}, ("cut", MISSING))
    assert counters.totals["enrichments_missing"] == 1


def test_what_is_added_is_bounded(assets: Lookup, tmp_path: Path) -> None:
    """A long value is cut, columns beyond the bound are left out; both are flagged."""
    found, _ = enriched(assets, EnrichSettings("assets", field="ip"), alert(), ip="10.1.2.5")
    assert found.fields["assets.owner"] == "x" * 1024
    assert found.flags == (CUT,)
    names = [f"c{n}" for n in range(9)]
    wide = lookup_of(tmp_path / "wide.vlookup", f"ip {' '.join(names)}", "ip:ip", [("10.0.0.1", *["y" * 900] * 9)])
    found, _ = enriched(wide, EnrichSettings("assets", field="ip", columns=tuple(names)), alert(), ip="10.0.0.1")
    assert sum(len(name) + len(value) for name, value in found.fields.items()) <= MAX_BYTES
    assert (len(found.fields), found.flags) == (5, (CUT,))
