"""The zip of a site: a release with its configuration, its rules, and what makes its host a member of the region.

What ``vedette region token zip`` and ``vedette member zip`` write is the release's own zip (``polyglot``) with four
members more:

    site.tar        vedette.toml  and, with a bundle of the region, site.vbundle
                    token                                   hosts that reach the region: each makes its own key
                    region-ca.pem  agent.pem  agent.key     one host that reaches no enroller
    site.sha256     its SHA-256
    site.sig        its signature (Ed25519, base64) by the region's ``site.key``
    site.pub        the public key of that, ``ed25519:BASE64``

install.sh puts the files of site.tar into /etc/vedette: the key for the agent's user only, what an operator has changed
never overwritten. The release's own members stay byte for byte, so its signature holds; but who made the release knows
nothing of sites. So the region signs what is its own, by a key that is made with the first zip and stays in its folder.
Who installs names the public key, or the first zip on a host does.

vedette.toml is the release's, line by line explained, with the site's values in force. The file holds a token or a
private key: its mode is 0600, its name and the zip's comment say SECRET, and equal inputs give equal bytes.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import re
import tarfile
import tomllib
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from vedette.bundle.install import read_bundle
from vedette.bundle.trust import addressed, verify
from vedette.config import read as config
from vedette.fleet.enrolment import Token
from vedette.region.polyglot import PAYLOAD, archive, read
from vedette.region.sign import keygen, load_key, public_text
from vedette.system.durable import write_whole
from vedette.version import __version__

CONFIG_DIR = "/etc/vedette"
"""In the files; install.sh writes its own in its place."""
BUNDLE = "site.vbundle"
TOKEN = "token"
_NEEDED = ("vedette.toml", "region-ca.pem", "agent.pem", "agent.key")
_MAX_TEMPLATE = 1 << 20


class Rules(NamedTuple):
    """What the site begins with: a ``bundle``, and the ``key`` that signs the region's; empty values leave the
    release's own in force."""

    bundle: Path | None = None
    key: str = ""


class Site(NamedTuple):
    """``values`` of the configuration, by table; ``files`` that come with it; ``secret``: what of them is."""

    name: str
    values: Mapping[str, Mapping[str, Any]]
    files: Mapping[str, bytes]
    secret: str


def of_member(name: str, folder: Path) -> Site:
    """Of an agent whose key and certificate are in ``folder``, as ``vedette member enroll`` writes it. Raises OSError
    and ValueError."""
    missing = [needed for needed in _NEEDED if not (folder / needed).is_file()]
    if missing:
        raise FileNotFoundError(f"{folder}: no {', '.join(missing)}: enroll {name} first (vedette member enroll)")
    own = tomllib.loads((folder / "vedette.toml").read_text("utf-8"))
    files = {needed: (folder / needed).read_bytes() for needed in _NEEDED[1:]}
    return Site(name, own, files, f"the private key of {name}; for its host only")


def of_token(token: Token, broker: str) -> Site:
    """Of hosts that enrol by ``token`` at the region whose broker's address is ``broker``."""
    values = {
        "agent": {"fleet": token.fleet},
        "broker": {"url": broker},
        "uplink": {"type": "mqtt"},
        "enrolment": {"token_file": f"{CONFIG_DIR}/{TOKEN}"},
    }
    files = {TOKEN: token.text().encode() + b"\n"}
    return Site(f"{token.fleet}-{token.id}", values, files, f"a token by which hosts join fleet {token.fleet}")


def merge(template: str, values: Mapping[str, Mapping[str, Any]]) -> str:
    """``template``, a commented TOML file, with ``values`` in force, each at its table's line ``#key = …``.

    Raises ValueError for a table or a key that the template does not have.
    """
    lines = template.splitlines(keepends=True)
    for table, keys in values.items():
        if f"[{table}]\n" not in lines:
            raise ValueError(f"the release's vedette.toml has no table [{table}]")
        start = lines.index(f"[{table}]\n")
        end = next((i for i in range(start + 1, len(lines)) if re.match(r"#?\[", lines[i])), len(lines))
        for key, value in keys.items():
            at = next((i for i in range(start, end) if re.match(rf"#?{re.escape(key)} = ", lines[i])), None)
            if at is None:
                raise ValueError(f"the release's vedette.toml has no setting {table}.{key}")
            lines[at] = f"{key} = {json.dumps(value, ensure_ascii=False)}\n"
    return "".join(lines)


class _Bounded(gzip.GzipFile):
    """A compressed tar, of which ``tarfile`` reads a header whole, however long that says to be."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= _MAX_TEMPLATE:
            raise OSError(f"a header of {size} bytes, at most {_MAX_TEMPLATE}")
        return super().read(size)


def _template(payload: bytes) -> str:
    """vedette.toml of a release's payload."""
    try:
        with _Bounded(fileobj=io.BytesIO(payload)) as plain, tarfile.open(fileobj=plain, mode="r:") as tar:
            member = tar.extractfile("vedette.toml")
            if member is None:
                raise KeyError("vedette.toml")
            return member.read(_MAX_TEMPLATE).decode()
    except (tarfile.TarError, KeyError, OSError, EOFError, zlib.error) as error:
        raise ValueError(f"the release's payload has no vedette.toml that can be read: {error}") from error


def configuration(template: str, site: Site, rules: Rules) -> str:
    """The site's vedette.toml. Raises ValueError when its values do not make a configuration."""
    own = dict(site.values)
    shipped = tomllib.loads(template)["bundles"]
    if rules.bundle is not None:
        own["bundles"] = {"file": f"{CONFIG_DIR}/{BUNDLE}", "trusted_keys": [rules.key]}
    elif rules.key:
        own["bundles"] = {"trusted_keys": list(dict.fromkeys([*shipped["trusted_keys"], rules.key]))}
    text = merge(template, own)
    config.parse(text, Path("vedette.toml"))
    return text


def _files(template: str, site: Site, rules: Rules) -> dict[str, bytes]:
    if rules.bundle is not None and not rules.key:
        raise ValueError("a bundle needs the public key that it is signed with: --trusted-key ed25519:BASE64")
    files = {**site.files, "vedette.toml": configuration(template, site, rules).encode()}
    if rules.bundle is not None:
        files[BUNDLE] = read_bundle(rules.bundle)
        bundle = verify(files[BUNDLE], [rules.key], __version__)
        own = tomllib.loads(files["vedette.toml"].decode())
        addressed(bundle, own["agent"]["fleet"], own["bundles"].get("channel", bundle.channel), of_host=True)
    return files


def _tar(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(data), 0o600, 315532800
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def site_key(region: Path) -> Path:
    """The region's key for sites' parts, in its folder; made when it is not there. Raises OSError."""
    path = region / "site.key"
    if not path.exists():
        keygen(path)
    return path


def site_zip(release: Path, site: Site, rules: Rules, folder: Path, key: Path) -> Path:
    """Write the site's copy of the zip ``release``, signed by ``key``, into ``folder`` and return its path.

    Raises ValueError (BundleRefused, ConfigError) for a release, a bundle or values that are not what they should be,
    and OSError; nothing is written then.
    """
    members = read(release)
    if "site.tar" in members:
        raise ValueError(f"{release}: is a site's zip already: give the release's own")
    packed = _tar(_files(_template(members[PAYLOAD]), site, rules))
    private = load_key(key)
    members |= {
        "site.tar": packed,
        "site.sha256": hashlib.sha256(packed).hexdigest().encode() + b"\n",
        "site.sig": base64.b64encode(private.sign(packed)) + b"\n",
        "site.pub": public_text(private).encode() + b"\n",
    }
    path = folder / f"{release.stem}-{site.name}-SECRET.zip"
    comment = f"SECRET: holds {site.secret}, to be deleted after the installation"
    write_whole(path, archive(path.name, members, comment), 0o600)
    return path
