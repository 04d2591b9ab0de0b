"""A host of stand-ins, in which a run of install.sh takes a fraction of a second and can be made to fail anywhere.

install.sh, the installer's Python and the units are the real ones; in a namespace of its own install.sh sees folders
of the test as /etc, /opt, /run, /srv, /usr/local/bin and /var, and no network. Releases are a few shell scripts; the
Python of the tests runs the installer. ``systemctl`` is a script that keeps to what systemd does as far as it is asked:
a socket opens at the address in its unit, on 127.0.0.0/8 alone, and not while the agent runs; a restart with
``--no-block`` may leave the old process there for a while. What it does on real hosts: ``test_boot.py``.
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from tests.install.conftest import INSTALLER, ROOT, Done, alone, call, sha256

PARTS = ("etc", "opt", "run", "srv", "usr/local/bin", "var")
IN = """
for part in etc opt run srv usr/local/bin var; do mount --bind "$1/$part" "/$part" || exit 99; done
eval "$2"
shift 2
PATH=/srv/bin:$PATH exec sh "$@"
"""
RELEASE_KEY = "ed25519:" + "A" * 43 + "="

SYSTEMCTL = """#!/bin/sh
# The state: /run/state/UNIT is there while it is active, with its process or address in it.
state=/run/state units=/etc/systemd/system
echo "$*" >>/run/calls
[ "$1" != --no-block ] || shift
verb=$1
shift
if [ -e /run/fail/"$verb" ]; then exit 1; fi
if [ -e /run/kill/"$verb" ]; then kill -"$(cat /run/kill/"$verb")" $PPID; exit 1; fi

name() { case $1 in *.*) echo "$1" ;; *) echo "$1.service" ;; esac; }
number() { cat "$state/$1" 2>/dev/null || echo 0; }
open_socket() {
    [ ! -e "$state/$1" ] || return 0
    [ ! -e $state/vedette.service ] || return 1
    address=$(sed -n 's/^Listen[A-Z][a-z]*=//p' "$units/$1")
    case $address in 127.*) echo "$address" >"$state/$1" ;; *) return 1 ;; esac
}
run() {
    open_socket vedette-udp.socket && open_socket vedette-tcp.socket
    rm -f $state/vedette.service $state/crashing
    echo 0 >$state/crashes
    echo $(($(number processes) + 1)) >$state/processes
    program=$(sed -n 's/^ExecStart=\\([^ ]*\\) .*/\\1/p' $units/vedette.service)
    if "$program" run; then number processes >$state/vedette.service; else : >$state/crashing; fi
}
start() {
    case $1 in
        *.socket) open_socket "$1" ;;
        vedette.service) [ -e "$state/$1" ] || run ;;
        *) : >"$state/$1" ;;
    esac
}
old_process_goes() { # after so many questions as /run/slow says
    [ -e $state/restarting ] || return 0
    left=$(cat $state/restarting)
    if [ "$left" -gt 0 ]; then echo $((left - 1)) >$state/restarting; else rm $state/restarting; run; fi
}
code=0
case $verb in
    --version) echo "systemd 252 (252.1)" ;;
    daemon-reload | reset-failed | status) ;;
    enable) for unit in "$@"; do : >"$state/enabled.$(name "$unit")"; done ;;
    disable) for unit in "$@"; do rm -f "$state/enabled.$(name "$unit")"; done ;;
    is-enabled) [ -e "$units/$(name "$1")" ] || exit 1
        if [ -e "$state/enabled.$(name "$1")" ]; then echo enabled; else echo disabled && exit 1; fi ;;
    is-active)
        if [ -e "$state/$(name "$1")" ]; then echo active && exit 0; fi
        if [ -e $state/crashing ]; then echo activating; else echo inactive; fi
        exit 3 ;;
    start) for unit in "$@"; do start "$(name "$unit")" || code=1; done ;;
    stop) for unit in "$@"; do rm -f "$state/$(name "$unit")" $state/crashing; done ;;
    restart)
        if [ -e /run/slow ] && [ -e $state/vedette.service ]; then cat /run/slow >$state/restarting; else run; fi ;;
    show)
        old_process_goes
        if [ -e $state/crashing ]; then echo $(($(number crashes) + 1)) >$state/crashes; fi
        case $2 in
            MainPID) echo "MainPID=$(number vedette.service)" ;;
            NRestarts) echo "NRestarts=$(number crashes)" ;;
        esac ;;
    *) echo "unknown: $verb" >&2 && exit 64 ;;
esac
exit $code
"""
VEDETTE = b"""#!/bin/sh
case $1 in
    run) ! grep -qx "version=$(cat /run/broken 2>/dev/null)" "${0%/bin/vedette}/RELEASE" ;;
    status)
        if [ ! -e /run/state/vedette.service ]; then echo "NOT OK: no agent runs: no one listens"; exit 1; fi
        if [ -e /run/wrong ]; then printf 'NOT OK: %s\\nup since\\n' "$(cat /run/wrong)"; exit 1; fi ;;
    version) echo vedette ;;
esac
"""
RUNNER = ROOT / "tests/install/runner.py"
VEDETTED = b"""#!/bin/sh
case $6 in
    */verify.py) [ -z "${10:-}" ] || exec tar -xof "$8" -C "${10}" ;;
    */installer) shift 5 && exec %s -X utf8 -I -S -B %s "$@" ;;
esac
exit 0
""" % (sys.executable.encode(), bytes(RUNNER))
"""Its installer is the real one."""
TOOLS = {
    "systemctl": SYSTEMCTL,
    "journalctl": "#!/bin/sh\n",
    "sync": "#!/bin/sh\n",
    "sleep": "#!/bin/sh\nexec /bin/sleep 0.01\n",
    "getent": "#!/bin/sh\n[ -e /run/users ]\n",
    "groupadd": "#!/bin/sh\n",
    "useradd": "#!/bin/sh\n: >/run/users\n",
    "userdel": "#!/bin/sh\nrm /run/users\n",
    "chown": '#!/bin/sh\necho "chown $*" >>/run/calls\n',
}


class Stubbed:
    """``folder`` has what the host has: ``folder / "opt/vedette"`` is its /opt/vedette."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for part in (*PARTS, "etc/systemd/system", "run/state", "run/systemd/system", "run/fail", "run/kill",
                     "srv/bin", "var/lib", "var/log"):  # fmt: skip
            (folder / part).mkdir(parents=True, exist_ok=True)
        self.prefix, self.units = folder / "opt/vedette", folder / "etc/systemd/system"
        self.config = folder / "etc/vedette/vedette.toml"
        for name, text in TOOLS.items():
            self.tool(name, text)

    def tool(self, name: str, text: str) -> None:
        path = self.folder / "srv/bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def release(
        self, version: str, changed: Mapping[str, bytes] | None = None, site: Mapping[str, bytes] | None = None
    ) -> str:
        """Its folder on the host, for ``run``."""
        path = self.folder / "srv" / version
        path.mkdir(exist_ok=True)
        make(path, version, changed or {}, site or {})
        return f"/srv/{version}"

    def run(self, release: str, *options: str, first: str = ":") -> Done:
        """install.sh of a release, or another script; ``first`` is done in the namespace before."""
        script = release if release.endswith(".sh") else f"{release}/install.sh"
        return call(*alone(), "--net", "sh", "-c", IN, "sh", self.folder, first, script, *options)

    def fault(self, event: str, pattern: str, does: str) -> None:
        """Plant one in the installer, see ``runner.py``."""
        (self.folder / "srv/fault").write_text(f"{event} {pattern} {does}")

    def breaks(self, version: str) -> None:
        """From now on this release does not come up."""
        (self.folder / "run/broken").write_text(version)

    def current(self) -> str:
        return os.readlink(self.prefix / "current")

    def previous(self) -> str:
        link = self.prefix / "previous"
        return os.readlink(link) if link.is_symlink() else ""

    def releases(self) -> set[str]:
        return {f"releases/{path.name}" for path in (self.prefix / "releases").iterdir()}

    def state(self, unit: str) -> str:
        """Its process or address; empty: it is not active."""
        path = self.folder / "run/state" / unit
        return path.read_text().strip() if path.exists() else ""

    def calls(self) -> list[str]:
        """Of systemctl and chown, since the last time."""
        path = self.folder / "run/calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def files(self) -> dict[str, bytes | str]:
        """All that an installation consists of: contents, and where links lead."""
        return {
            str(path.relative_to(self.folder)): os.readlink(path) if path.is_symlink() else path.read_bytes()
            for part in ("etc", "opt", "usr", "var/lib")
            for path in (self.folder / part).rglob("*")
            if path.is_symlink() or path.is_file()
        }


def make(path: Path, version: str, changed: Mapping[str, bytes], site: Mapping[str, bytes]) -> None:
    packaging = ROOT / "packaging"
    files = {
        "install.sh": (ROOT / "install.sh").read_bytes(),
        "RELEASE": f"version={version}\narch={os.uname().machine}\nunpacked_kib=100\n".encode(),
        "vedette.toml": (packaging / "vedette.toml").read_bytes(),
        "supervise.sh": (packaging / "supervise.sh").read_bytes(),
        **INSTALLER,
        "verify.py": b"",
        "probe.py": b"",
        "bin/vedette": VEDETTE,
        "runtime/bin/vedetted": VEDETTED + b"#" * 256,  # where the path of the loader is written
        "runtime/interpreter": b"%d 256 ld.so\n" % len(VEDETTED),
        **{f.name: f.read_bytes() for pattern in ("*.service", "*.socket", "*.path") for f in packaging.glob(pattern)},
        **{f"systemd/{f.name}": f.read_bytes() for f in (packaging / "systemd").glob("*.conf")},
        **changed,
    }
    files["FILES.sha256"] = "".join(f"{sha256(data)}  {name}\n" for name, data in files.items()).encode()
    parts = {name: files[name] for name in ("install.sh", "RELEASE")}
    parts["payload.tar.gz"], parts["release.pub"] = packed(files, "w:gz"), RELEASE_KEY.encode() + b"\n"
    parts["SHA256SUMS"] = "".join(f"{sha256(data)}  {name}\n" for name, data in parts.items()).encode()
    if site:
        parts["site.tar"] = packed(site, "w")
        parts["site.sha256"] = sha256(parts["site.tar"]).encode()
        parts["site.sig"], parts["site.pub"] = b"", RELEASE_KEY.encode() + b"\n"
    for name, data in parts.items():
        (path / name).write_bytes(data)


def packed(files: Mapping[str, bytes], mode: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o755
            tar.addfile(info, io.BytesIO(data))
    return stream.getvalue()
