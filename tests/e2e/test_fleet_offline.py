"""A site without a connection: what the fleet wants is carried there in a zip, and what the host answers is carried
back; what is forged, old or another fleet's changes nothing."""

from __future__ import annotations

import datetime
import json
import socket
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.e2e.agent import up, vedette
from tests.e2e.test_asking import Operators
from tests.e2e.test_fleet import FLEET, UNDO, Centre, Host
from tests.e2e.test_fleet_lookups import Tables, has
from tests.e2e.test_lookups import in_use, version
from tests.waits import until
from vedette.fleet.audit import Audit, verify

pytestmark = [pytest.mark.peer, pytest.mark.long, pytest.mark.usefixtures("awake")]
EVENTS = 300


class Island(Host):
    """Without an uplink."""

    def configure(self, settings: str) -> None:
        member = self.centre.enroll(self.name, "--fleet", FLEET, "--broker", "mqtts://127.0.0.1:1")
        self.config.write_text(
            f'[agent]\nid = "{self.name}"\nsite = "{self.site}"\nfleet = "{FLEET}"\ndata_dir = "{self.data}"\n'
            f'[broker]\nurl = "mqtts://127.0.0.1:1"\nca_file = "{member}/region-ca.pem"\n'
            f'cert_file = "{member}/agent.pem"\nkey_file = "{member}/agent.key"\n[uplink]\ntype = "directory"\n'
            f'[bundles]\ntrusted_keys = ["{self.centre.author}"]\n[fleet]\n'
            f'root = "{self.centre.trust}/tuf/1.root.json"\nundo_after = "{UNDO}s"\n[log]\nformat = "json"\n'
        )


@pytest.fixture
def centre(tmp_path: Path) -> Centre:
    return Centre(tmp_path / "centre")


@pytest.fixture
def host(centre: Centre, tmp_path: Path) -> Iterator[Island]:
    made = Island(tmp_path / "vienna", centre, "vienna-1", "vienna")
    with up(made):
        yield made


def signed(centre: Centre, **vienna: str) -> None:
    """As two operators do, with no broker."""
    centre.write(**vienna)
    centre.put_in_force(carried=True)


def exported(centre: Centre, name: str, site: str = "vienna") -> Path:
    out = centre.folder / f"{name}.zip"
    vedette("fleet", "export", "--site", site, "--trust", centre.trust, "--out", out)
    return out


def answered(centre: Centre, host: Host, *more: object, code: int = 0) -> str:
    out = centre.folder / "answers.zip"
    vedette("fleet", "export", "--answers", "--out", out, "-c", host.config)
    done = vedette("fleet", "import", "--answers", out, "--trust", centre.trust, *more, code=code)
    return done.stdout + done.stderr


def test_there_and_back_by_hand(centre: Centre, host: Island) -> None:
    """Bundle, lookup and overlay arrive by a zip; the host's signed answer shows at the centre that it runs them; a
    zip that was taken while the agent was away counts from its start."""
    tables = Tables(centre)
    first, second = tables.users("alice"), tables.users("bob")
    overlay = centre.overlay("debug", '[log]\nlevel = "debug"\n')
    signed(centre, **{"bundle": tables.asking(1, first), "lookups.users": f"tables/{first.name}", "config": overlay})
    file = exported(centre, "first")
    assert "desired document 1" in vedette("fleet", "import", file, "-c", host.config).stdout
    host.wait("all of it", lambda actual: has(host, first)(actual) and host.bundle() == 1 and not actual["problems"]
              and actual["config"]["overlay"] and actual["config"]["confirmed"])  # fmt: skip
    ca = centre.members / "members" / "vienna-1" / "region-ca.pem"
    assert "vienna-1: signed by it" in answered(centre, host, "--ca-file", ca)
    shown = vedette("fleet", "status", "--trust", centre.trust).stdout
    assert "vienna: 1 of 1 as wanted" in shown

    host.kill()
    signed(centre, **{"bundle": "bundles/asking-1.vbundle", "lookups.users": f"tables/{second.name}"})
    assert (
        "takes them when it starts" in vedette("fleet", "import", exported(centre, "second"), "-c", host.config).stdout
    )
    assert "behind" in vedette("fleet", "status", "--trust", centre.trust).stdout
    host.start()
    host.ready()
    host.wait("the second", has(host, second))
    host.wait("no overlay", lambda actual: not actual["config"]["overlay"])

    refused = vedette("fleet", "import", file, "-c", host.config, code=2).stderr
    assert "version" in refused
    host.wait("no change", lambda actual: actual["desired_serial"] == 2)
    assert in_use(host) == version(second)
    assert "metadata_refused" in host.recorded()


def test_what_is_not_carried(centre: Centre, host: Island) -> None:
    """The zip of a site has what its groups may need and no other; a changed zip, a foreign name in one, and one for
    another site's group change nothing; a changed record is seen at the centre."""
    lines = []
    for name, bundle in (("vienna", centre.bundle(1)), ("linz", centre.bundle(2))):
        lines += ["[[group]]", f'name = "{name}"', f'match = "site = {name}"', f'bundle = "{bundle}"']
    signed(centre)
    centre.toml.write_text("\n".join(lines))
    centre.put_in_force(carried=True)
    vienna, linz = exported(centre, "vienna"), exported(centre, "linz", "linz")
    names = [{*zipfile.ZipFile(path).namelist()} for path in (vienna, linz)]
    assert len(names[0] ^ names[1]) == 2  # a bundle each
    assert "no group can have an agent" in vedette(
        "fleet", "export", "--site", "graz", "--trust", centre.trust, "--out", centre.folder / "x.zip", code=2
    ).stderr  # fmt: skip

    for name, data in (("../evil", b"x"), ("blobs/../../evil", b"x")):
        with zipfile.ZipFile(vienna) as source, zipfile.ZipFile(centre.folder / "bad.zip", "w") as bad:
            for info in source.infolist():
                bad.writestr(info.filename, source.read(info))
            bad.writestr(name, data)
        done = vedette("fleet", "import", centre.folder / "bad.zip", "-c", host.config, code=2)
        assert "does not belong there" in done.stderr
    with zipfile.ZipFile(vienna) as source, zipfile.ZipFile(centre.folder / "bad.zip", "w") as bad:
        for info in source.infolist():
            data = source.read(info)
            if info.filename == "tuf/timestamp.json":
                row = json.loads(data)
                row["signed"]["version"] += 1
                data = json.dumps(row).encode()
            bad.writestr(info.filename, data)
    assert "signed" in vedette("fleet", "import", centre.folder / "bad.zip", "-c", host.config, code=2).stderr
    assert host.bundle() == 0

    vedette("fleet", "import", linz, "-c", host.config)
    host.wait("its bundle does not come", lambda actual: any("bundle default" in one for one in actual["problems"]))
    vedette("fleet", "import", vienna, "-c", host.config)
    host.wait("its bundle", lambda actual: host.bundle() == 1)

    ca = centre.members / "members" / "vienna-1" / "region-ca.pem"
    answered(centre, host, "--ca-file", ca)
    record = host.data / "fleet" / "audit.jsonl"
    kept = record.read_text().splitlines()
    record.write_text("\n".join(kept[1:]) + "\n")
    assert "its record was changed: line 1" in answered(centre, host, "--ca-file", ca, code=1)
    with zipfile.ZipFile(centre.folder / "answers.zip") as source:
        parts = {name: source.read(name) for name in source.namelist()}
    parts["answer.json"] = parts["answer.json"].replace(b'"vienna-1"', b'"linz-1"')
    with zipfile.ZipFile(centre.folder / "forged.zip", "w") as forged:
        for name, data in parts.items():
            forged.writestr(name, data)
    done = vedette("fleet", "import", "--answers", centre.folder / "forged.zip", "--trust", centre.trust,
                   "--ca-file", ca, code=2)  # fmt: skip
    assert "not signed by agent linz-1" in done.stderr
    until("the agent's life", host.running)


class Asked(Island):
    """With a syslog input, whose owner redacts passwords."""

    def configure(self, settings: str) -> None:
        super().configure(settings)
        text = self.config.read_text().replace(
            "[fleet]\n", "[[redact]]\nexpressions = ['(?i)password=\\S+']\n[fleet]\n", 1
        )
        self.config.write_text(f'[[input]]\ntype = "syslog"\nname = "in"\ntcp = "127.0.0.1:{self.port}"\n' + text)

    def fed(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            for i in range(EVENTS):
                connection.sendall(b"<38>Nov 22 10:00:00 web9 app[7]: event %06d password=s3cret\n" % i)
        until("the events", lambda: self.input()["stored"] >= EVENTS)

    @property
    def record(self) -> list[dict[str, Any]]:
        path = self.data / "fleet" / "audit.jsonl"
        assert verify(path)[1] is None
        return [*Audit(path).lines()]


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[tuple[Operators, Asked]]:
    """A centre with operators, and a host that does not know them yet."""
    centre = Operators(tmp_path / "centre")
    host = Asked(tmp_path / "vienna", centre, "vienna-1", "vienna")
    host.start()
    host.ready()
    yield centre, host
    host.kill()


def offline(centre: Operators, who: str, *words: object, code: int = 0) -> str:
    """A question without a broker; the first digits of its id."""
    done = centre.offline(who, *words, code=code)
    return done.stderr.partition("request ")[2][:8]


def trip(centre: Operators, host: Asked, name: str, code: int = 0) -> tuple[Path, str]:
    """To the host; the zip, and what the import said."""
    out = centre.folder / f"{name}.zip"
    vedette("fleet", "export", "--site", "vienna", "--trust", centre.trust, "--requests", centre.requests, "--out", out)
    done = vedette("fleet", "import", out, "-c", host.config, code=code)
    return out, done.stdout + done.stderr


def back(centre: Operators, host: Asked, name: str = "") -> Path:
    """From the host."""
    out = centre.folder / f"answers{name}.zip"
    vedette("fleet", "export", "--answers", "--out", out, "-c", host.config)
    return out


def imported(centre: Operators, file: Path, code: int = 0) -> str:
    ca = centre.analyst / "region-ca.pem"
    done = vedette("fleet", "import", "--answers", file, "--trust", centre.trust, "--requests", centre.requests,
                   "--ca-file", ca, code=code)  # fmt: skip
    return done.stdout + done.stderr


def finished(host: Asked, count: int) -> None:
    until("the replies", lambda: sum(row["event"] == "request_finished" for row in host.record) == count)


def test_questions_travel_by_file(asked: tuple[Operators, Asked]) -> None:
    """A question and evidence go in the zip of a site and come back in the host's answers, once; the host refuses what
    a role does not allow, and a zip that comes twice; a part that was changed on the way back is refused and recorded,
    and comes with the next answers."""
    centre, host = asked
    host.fed()
    signed(centre)
    ask = offline(centre, "vera", "ask", "versions", "--agent", "vienna-1")
    now = datetime.datetime.now(datetime.UTC)
    since, until_ = ((now + datetime.timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ") for hours in (-1, 1))
    words = ("--agent", "vienna-1", "--from", since, "--to", until_, "--pattern", "event 00001", "--reason", "case 17")
    evidence = offline(centre, "ann", "evidence", *words)
    elsewhere = offline(centre, "vera", "ask", "disk", "--agent", "vienna-2")
    first, said = trip(centre, host, "first")
    assert {f"request {id}: taken" in said for id in (ask, evidence)} == {True}
    assert elsewhere not in said
    finished(host, 2)

    again = vedette("fleet", "import", first, "-c", host.config).stderr
    assert {f"request {id}: refused: replayed" in again for id in (ask, evidence)} == {True}
    replays = [row for row in host.record if row["event"] == "request_refused"]
    assert replays
    assert {row["refused"] for row in replays} == {"replayed"}
    assert [row["event"] for row in host.record].count("request_received") == 2

    answers = back(centre, host)
    with zipfile.ZipFile(answers) as source, zipfile.ZipFile(centre.folder / "changed.zip", "w") as changed:
        for info in source.infolist():
            data = source.read(info)
            if info.filename.startswith(f"replies/{ask}"):
                data = data[:-1] + bytes([data[-1] ^ 1])
            changed.writestr(info.filename, data)
    refused = imported(centre, centre.folder / "changed.zip", code=1)
    assert f"request {ask}: refused: " in refused
    assert [row["refused"] for row in centre.record if row["event"] == "reply_refused"]
    assert "no answer" in centre.offline("vera", "fetch", ask, code=1).stderr
    shown = centre.offline("ann", "fetch", evidence, "--evidence", centre.evidence)
    assert "vienna-1: done" in shown.stderr
    [path] = centre.evidence.rglob("*.jsonl.zst")
    with zstandard.open(path, "rt") as lines:
        rows = [json.loads(line)["raw"] for line in lines]
    assert len(rows) == 10
    assert "event 000019 [redacted]" in rows[9]

    assert f"request {ask}: 1 new parts" in imported(centre, answers)
    shown = centre.offline("vera", "fetch", ask).stdout
    assert "vienna-1  done" in shown
    assert "python" in shown
    row = json.loads(centre.offline("vera", "fetch", ask, "--json").stdout)
    assert (row["state"], row["whole"], len(row["records"])) == ("done", True, 1)
    with zipfile.ZipFile(trip(centre, host, "second")[0]) as second:  # what is answered does not travel again
        assert [name[9:17] for name in second.namelist() if name.startswith("requests/")] == [elsewhere]


def test_refusals_and_what_waits_travel_too(asked: tuple[Operators, Asked]) -> None:
    """Why a host refuses comes back signed; a request that was carried while the agent was away is taken at its start;
    one that was changed on the way is refused; a group is asked by the answers of before."""
    centre, host = asked
    signed(centre)
    denied = offline(centre, "otto", "do", "reload", "--agent", "vienna-1")
    assert f"request {denied}: refused: not allowed" in trip(centre, host, "first", code=1)[1]
    imported(centre, back(centre, host))
    assert "refused: not allowed" in centre.offline("otto", "fetch", denied, code=1).stderr

    host.kill()
    asked_all = offline(centre, "vera", "ask", "versions", "--group", "site = vienna")
    file = trip(centre, host, "second")[0]
    host.start()
    host.ready()
    finished(host, 1)
    assert f"request {asked_all}: 1 new parts" in imported(centre, back(centre, host, "2"))
    assert "no agent whose answers" in centre.offline("vera", "ask", "disk", "--group", "site = graz", code=2).stderr

    with zipfile.ZipFile(file) as source, zipfile.ZipFile(centre.folder / "forged.zip", "w") as forged:
        for info in source.infolist():
            data = source.read(info)
            if info.filename.startswith("requests/"):
                data = data.replace(b'"versions"', b'"status"')
            forged.writestr(info.filename, data)
    done = vedette("fleet", "import", centre.folder / "forged.zip", "-c", host.config, code=1)
    assert "refused: signature" in done.stderr


def test_cancelled_by_file(asked: tuple[Operators, Asked]) -> None:
    """What a host works on is stopped by the next zip; what has not come yet is refused when an older zip brings it;
    of an operator who was taken out nothing travels any more, and the host ends what he had asked."""
    centre, host = asked
    signed(centre)
    hunt = offline(centre, "ann", "hunt", rule(centre), "--agent", "vienna-1", "--since", "1d")
    _, said = trip(centre, host, "first")
    assert f"request {hunt}: taken" in said
    centre.offline("ann", "cancel", hunt)
    later = offline(centre, "ann", "evidence", "--agent", "vienna-1", "--from", "2026-01-01T00:00:00Z", "--to",
                    "2099-01-01T00:00:00Z", "--reason", "x")  # fmt: skip
    old = exported_requests(centre, "old")
    assert "it goes with" in centre.offline("ann", "cancel", later).stdout
    trip(centre, host, "second")
    until("both", lambda: sum(row["event"] == "request_cancelled" for row in host.record) == 2)
    done = vedette("fleet", "import", old, "-c", host.config, code=1).stderr
    assert f"request {later}: refused: cancelled" in done
    imported(centre, back(centre, host))
    assert (
        "vienna-1: refused: cancelled: "
        in centre.offline("ann", "fetch", later, "--evidence", centre.evidence, code=1).stderr
    )

    lost = offline(centre, "vera", "ask", "versions", "--agent", "vienna-2")
    centre.toml.write_text(centre.toml.read_text().replace('name = "vera"', 'name = "erna"'))
    vedette("fleet", "plan", centre.toml, "--trust", centre.trust)
    for name in ("carol", "dave"):
        vedette("fleet", "sign", "--trust", centre.trust, "--key", centre.keys / f"{name}.pem")
    vedette("fleet", "apply", "--trust", centre.trust)
    done = vedette("fleet", "export", "--site", "vienna", "--trust", centre.trust, "--requests", centre.requests,
                   "--out", centre.folder / "third.zip")  # fmt: skip
    assert f"request {lost} does not travel: vera is no operator" in done.stderr
    assert [row["operator"] for row in centre.record if row["event"] == "request_ended"] == ["vera"]


def rule(centre: Operators) -> Path:
    path = centre.folder / "planted.yml"
    path.write_text(
        "title: Planted\nid: 7f1b1f0e-6b0e-4a53-9a0f-0d1f6a6a7c11\nlogsource: {product: linux}\n"
        "detection:\n  a:\n    message|contains: needle\n  condition: a\nlevel: high\n"
    )
    return path


def exported_requests(centre: Operators, name: str) -> Path:
    out = centre.folder / f"{name}.zip"
    vedette("fleet", "export", "--site", "vienna", "--trust", centre.trust, "--requests", centre.requests, "--out", out)
    return out
