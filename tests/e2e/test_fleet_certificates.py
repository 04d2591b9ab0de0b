"""Certificates of hosts without a connection: requests and answers are carried by hand."""

from __future__ import annotations

import datetime
import zipfile
from pathlib import Path

import pytest

from tests.e2e.agent import up, vedette
from tests.e2e.test_fleet import FLEET, Centre
from tests.e2e.test_fleet_offline import Island, answered, exported, signed
from tests.waits import until
from vedette.fleet.audit import Audit
from vedette.fleet.certificates import requested_key
from vedette.fleet.enrolment import Answer, new_token
from vedette.fleet.identity import Identity
from vedette.region.enroll import Region

pytestmark = [pytest.mark.peer, pytest.mark.long, pytest.mark.usefixtures("awake")]


@pytest.fixture
def centre(tmp_path: Path) -> Centre:
    return Centre(tmp_path / "centre")


class Member(Island):
    """Enrolled by a token seventy days ago, when it still had a connection; its key was made on it."""

    def configure(self, settings: str) -> None:
        made = Identity(self.data / "identity", self.name)
        before = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=70)
        with Region.open(self.centre.members) as region:
            region.broker = "mqtts://127.0.0.1:1"
            public = requested_key(made.request_csr())
            certificate = region.admit(self.name, public, fleet=FLEET, labels={}, days=90, now=before)
            authorities = region.authorities.pem().decode()
        made.take(Answer("0" * 32, certificate.decode(), authorities), FLEET)
        token = self.data / "token"
        token.write_text(new_token(FLEET).text())
        self.config.write_text(
            f'[agent]\nid = "{self.name}"\nsite = "{self.site}"\nfleet = "{FLEET}"\ndata_dir = "{self.data}"\n'
            f'[enrolment]\ntoken_file = "{token}"\n[uplink]\ntype = "directory"\n[fleet]\n'
            f'root = "{self.centre.trust}/tuf/1.root.json"\n[log]\nformat = "json"\n'
        )

    def ends(self) -> str:
        return str(self.status()["membership"]["certificate_expires"])


def test_a_certificate_is_renewed_by_file(centre: Centre, tmp_path: Path) -> None:
    """A host that asks does so in its answers; its next certificate goes with the next zip, also where its agent was
    away; then its answers are signed by the new one. Another's request, and one that comes again, change nothing; a
    new authority travels the same way."""
    host = Member(tmp_path / "vienna", centre, "vienna-1", "vienna")
    members = ("--members", centre.members)
    with up(host):
        signed(centre)
        vedette("fleet", "import", exported(centre, "first"), "-c", host.config)
        before = host.ends()
        assert "to be renewed" in host.status()["membership"]["problem"]
        ca = centre.members / "members" / "ops" / "region-ca.pem"
        assert "asks for its next certificate: give --members" in answered(centre, host, "--ca-file", ca)
        assert "its certificate is renewed" in answered(centre, host, "--ca-file", ca, *members)
        assert "its certificate is renewed" not in answered(
            centre, host, "--ca-file", ca, *members
        )  # it has come again
        assert before == host.ends()
        file = exported(centre, "second")
        assert "certificates/vienna-1.json" in zipfile.ZipFile(file).namelist()
        assert "certificate: renewed until" in vedette("fleet", "import", file, "-c", host.config).stdout
        after = host.ends()
        assert after > before
        assert host.status()["membership"]["problem"] is None
        assert "vienna-1: signed by it" in answered(centre, host, *members)
        assert "certificate: as it was" in vedette("fleet", "import", file, "-c", host.config).stdout

        vedette("member", "authority", "rotate", "--folder", centre.members)
        answered(centre, host, *members)
        host.kill()
        vedette("fleet", "import", exported(centre, "third"), "-c", host.config)
        host.start()
        host.ready()
        trusted = host.data / "identity" / "region-ca.pem"
        until("both authorities", lambda: trusted.read_text().count("BEGIN CERTIFICATE") == 2)
        assert host.ends() == after

        with zipfile.ZipFile(centre.folder / "answers.zip") as source:
            parts = {name: source.read(name) for name in source.namelist()}
        stranger = Identity(tmp_path / "stranger", "vienna-1")
        stranger.request_csr()
        with zipfile.ZipFile(centre.folder / "forged.zip", "w") as forged:
            for name, data in {**parts, "renewal.json": stranger.renewal_request()}.items():
                forged.writestr(name, data)
        done = vedette("fleet", "import", "--answers", centre.folder / "forged.zip", "--trust", centre.trust,
                       *members, code=1)  # fmt: skip
        assert "its certificate is not renewed: the request is not signed by the key" in done.stderr
    events = [row["event"] for row in Audit(centre.members / "audit.jsonl").lines()]
    assert (events.count("renewed"), events.count("renewal_refused")) == (1, 1)
