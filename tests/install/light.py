"""A light release: its program is the Python that runs the tests, with the packages and the kernel that are there.

install.sh, the zip, its signatures, the starter bundle and the agent are the real ones; what only the build brings is
not: the private Python, its C library and wheels. It is made in a moment and takes 200 KB.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.install.conftest import INSTALLER, ROOT, packed, starter_bundle
from tests.install.stubbed import RUNNER
from vedette import __version__
from vedette.region.sign import keygen

PACKAGING = ROOT / "packaging"
PROGRAMS = ("launch.py", "probe.py", "supervise.sh", "take.py", "verify.py")
VEDETTED = f"""#!/bin/sh
# Without -S: the packages are those of this Python.
case ${{VEDETTE_TEST_KILLER:+$6}} in
    */installer) shift 5 && exec {shlex.quote(sys.executable)} -X utf8 -I -S -B {shlex.quote(str(RUNNER))} "$@" ;;
esac
for word; do
    shift
    [ "$word" = -S ] || set -- "$@" "$word"
done
exec {shlex.quote(sys.executable)} "$@"
""".encode()


class Light(NamedTuple):
    """What its releases are made of, in a folder."""

    folder: Path
    starter: bytes
    """A signed bundle of ``RULE``."""
    starter_key: str
    public: str
    """The key of releases."""
    private: Path

    @classmethod
    def make(cls, folder: Path) -> Light:
        starter_key = keygen(folder / "starter.pem")
        starter_bundle(folder / "starter.vbundle", folder / "starter.pem")
        public = keygen(folder / "release.pem")
        return cls(folder, (folder / "starter.vbundle").read_bytes(), starter_key, public, folder / "release.pem")

    def zip(
        self,
        version: str = __version__,
        changed: Mapping[str, bytes] | None = None,
        *,
        key: Path | None = None,
        name: str = "",
        arch: str = "",
    ) -> Path:
        """The zip of a release; some of its files replaced, signed by ``key``."""
        settings = (PACKAGING / "vedette.toml").read_text("utf-8")
        settings = settings.replace("\ntrusted_keys = []", f'\ntrusted_keys = ["{self.starter_key}"]')
        facts = f"version={version}\narch={arch or os.uname().machine}\nunpacked_kib=400\n"
        files = {
            "install.sh": (ROOT / "install.sh").read_bytes(),
            "RELEASE": facts.encode(),
            "vedette.toml": settings.encode(),
            "starter.vbundle": self.starter,
            "bin/vedette": (PACKAGING / "vedette.sh").read_bytes(),
            "runtime/bin/vedetted": VEDETTED + b"#" * 256,  # where the path of the loader is written
            "runtime/interpreter": b"%d 256 ld.so\n" % len(VEDETTED),
            **{name: (PACKAGING / name).read_bytes() for name in PROGRAMS},
            **INSTALLER,
            **{f.name: f.read_bytes() for kind in ("service", "socket", "path") for f in PACKAGING.glob(f"*.{kind}")},
            **{f"systemd/{f.name}": f.read_bytes() for f in (PACKAGING / "systemd").glob("*.conf")},
            **(changed or {}),
        }
        modes = dict.fromkeys(("bin/vedette", "install.sh", "runtime/bin/vedetted"), 0o755)
        path = self.folder / f"{name or version}.zip"
        path.write_bytes(packed(path.name, files, modes, self.public.encode() + b"\n", key or self.private))
        return path
