"""What a host has from its enrolment is a default: the local file wins, and what is malformed is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vedette.config.read import load
from vedette.fleet.enrolment import new_token

KEY = "ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
OWN = "ed25519:BAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
TOKEN = new_token("plants").text()


def host(
    folder: Path, text: str = "", said: Any = None, token: str = TOKEN, *, broker: str = "", uplink: str = ""
) -> Any:
    data = folder / "data"
    (data / "identity").mkdir(parents=True, exist_ok=True)
    if said is not None:
        (data / "identity" / "identity.json").write_text(said if isinstance(said, str) else json.dumps(said))
    (folder / "token").write_text(token)
    path = folder / "vedette.toml"
    path.write_text(
        f'[enrolment]\ntoken_file = "{folder}/token"\n[broker]\nurl = "mqtts://region.example:8883"\n{broker}'
        f'[uplink]\ntype = "mqtt"\n{uplink}[agent]\ndata_dir = "{data}"\n{text}'
    )
    return load(path)


def test_before_the_answer(tmp_path: Path) -> None:
    config = host(tmp_path)
    identity = tmp_path / "data" / "identity"
    assert config.agent.fleet == "plants"
    assert (config.uplink.broker.cert_file, config.uplink.broker.ca_file) == (
        identity / "agent.pem",
        identity / "region-ca.pem",
    )
    assert config.fleet.root is None


@pytest.mark.parametrize("token", ["v1:a/b:0:0", "v1:#:0:0", "none", "v1::0:0", "\xff"])
def test_a_token_that_is_none_names_no_fleet(tmp_path: Path, token: str) -> None:
    assert host(tmp_path, token=token).agent.fleet == "default"
    assert host(tmp_path, said={"fleet": "a/+", "settings": {}}, token=token).agent.fleet == "default"


def test_after_it(tmp_path: Path) -> None:
    """Without the token's file, too, which may be removed."""
    said = {"fleet": "plants", "settings": {"labels": {"site": "vienna"}, "receipt_keys": [KEY], "trusted_keys": [KEY]}}
    host(tmp_path, said=said)
    (tmp_path / "data" / "identity" / "root.json").write_text("{}")
    (tmp_path / "token").unlink()
    config = load(tmp_path / "vedette.toml")
    assert config.agent.fleet == "plants"
    assert (config.uplink.receipt_keys, config.bundles.trusted_keys) == ((KEY,), (KEY,))
    assert config.fleet.labels == {"site": "vienna"}
    assert config.fleet.root == tmp_path / "data" / "identity" / "root.json"


def test_the_local_file_wins(tmp_path: Path) -> None:
    """But for keys of bundles, to which the region's are added."""
    labels = {"site": "vienna", "os": "debian"}
    said = {"fleet": "plants", "settings": {"labels": labels, "receipt_keys": [KEY], "trusted_keys": [KEY]}}
    text = f'fleet = "own"\n[fleet]\nroot = "{tmp_path}/own.json"\nlabels = {{site = "linz"}}\n'
    text += f'[bundles]\ntrusted_keys = ["{OWN}"]\n'
    (tmp_path / "data" / "identity").mkdir(parents=True)
    (tmp_path / "data" / "identity" / "root.json").write_text("{}")
    config = host(tmp_path, text, said, uplink=f'receipt_keys = ["{OWN}"]\n')
    assert config.agent.fleet == "own"
    assert config.fleet.labels == {"site": "linz", "os": "debian"}
    assert config.fleet.root == tmp_path / "own.json"
    assert (config.uplink.receipt_keys, config.bundles.trusted_keys) == ((OWN,), (OWN, KEY))


def test_a_certificate_of_its_own_stays(tmp_path: Path) -> None:
    """With its key; authorities of its own alone do not keep the enrolled certificate out."""
    own, identity = tmp_path / "own.pem", tmp_path / "data" / "identity"
    broker = host(tmp_path, broker=f'cert_file = "{own}"\nkey_file = "{own}"\n').uplink.broker
    assert (broker.ca_file, broker.cert_file, broker.key_file) == (None, own, own)
    broker = host(tmp_path, broker=f'ca_file = "{own}"\n').uplink.broker
    assert (broker.ca_file, broker.cert_file, broker.key_file) == (own, identity / "agent.pem", identity / "agent.key")


@pytest.mark.parametrize("said", ["", "[]", "{", '{"settings": []}', '{"settings": {"labels": 1, "receipt_keys": "x"}}',
                                  '{"settings": {"receipt_keys": [1, "none"], "labels": {"a": 1}}}'])  # fmt: skip
def test_what_is_malformed_is_left_out(tmp_path: Path, said: str) -> None:
    config = host(tmp_path, said=said)
    assert (config.agent.fleet, config.fleet.labels, config.uplink.receipt_keys) == ("plants", {}, ())


def test_no_token_nothing_of_it(tmp_path: Path) -> None:
    path = tmp_path / "vedette.toml"
    path.write_text(f'[agent]\ndata_dir = "{tmp_path}"\n')
    assert load(path).uplink.broker.cert_file is None
