"""A file that is a zip and a shell script: what ``make dist`` and ``vedette member zip`` write.

    bytes 0 … STUB_BYTES-1      a POSIX shell script, padded with newlines; its last command is ``exit``
    then                        an ordinary zip, whose offsets count from the start of the file

All members are stored, not deflated (``payload.tar.gz`` is packed already), so that the script finds each with nothing
but ``tail -c`` and ``head -c``: on a host without ``unzip`` it takes the small ones out into a temporary folder of its
own and runs ``install.sh`` there; the payload is not copied, install.sh reads it out of this file. The script knows the
size of the whole file and the digest of install.sh, and refuses with exit code 20 what is truncated or damaged; the
rest is for install.sh to check.

An add-on is such a file, too, with the members ADDON (facts, as lines of KEY=VALUE), ADDON.sig and the payload. Its
script installs nothing: in it stand, as comments, the places of its members, for the release's own install.sh to read,
which unpacks nothing of it before the release's key has signed ADDON, and ADDON names the payload's digest.

Equal members give equal bytes. ``read`` gives the members of such a file, or of a zip without the script.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

STUB_BYTES = 4096
PAYLOAD = "payload.tar.gz"
FOLDER = "vedette"
"""All members lie below it, so that ``unzip`` makes one folder."""
PROGRAMS = ("install.sh",)
MAX_ARCHIVE = 256 << 20
"""Bytes of a file that ``read`` takes."""

_STUB = """\
#!/bin/sh
# This file is a zip and a program: unzip it, or install Vedette from it: sudo sh {name} [OPTION...]
# The options: sh {name} --help
main() {{
    set -eu
    case $0 in */*) file=$0 ;; *) file=./$0 ;; esac
    size=$(wc -c <"$file")
    if [ "$size" -ne {size} ]; then
        echo "vedette: $file is damaged: it has $size bytes and not {size}: copy it again, in binary mode" >&2
        exit 20
    fi
    umask 077
    folder=$(mktemp -d "${{TMPDIR:-/tmp}}/vedette.XXXXXXXX" 2>/dev/null) || {{
        echo "vedette: ${{TMPDIR:-/tmp}} cannot be written to: name another folder for temporary files with TMPDIR" >&2
        exit 17
    }}
    trap 'rm -rf "$folder"' EXIT
    trap 'exit 1' HUP INT TERM
    part() {{ tail -c +"$1" "$file" 2>/dev/null | head -c "$2" >"$folder/$3"; }}
{parts}
    if ! command -v sha256sum >/dev/null; then
        echo "vedette: the program 'sha256sum' is needed and not there" >&2
        exit 10
    fi
    if [ "$(sha256sum <"$folder/install.sh")" != "{digest}  -" ]; then
        echo "vedette: $file is damaged: install.sh in it is another: copy it again, in binary mode" >&2
        exit 20
    fi
    VEDETTE_ARCHIVE=$file VEDETTE_ARCHIVE_START={start} VEDETTE_ARCHIVE_BYTES={length}
    export VEDETTE_ARCHIVE VEDETTE_ARCHIVE_START VEDETTE_ARCHIVE_BYTES
    sh "$folder/install.sh" "$@"
}}
main "$@"; exit $?
"""


_ADDON_STUB = """\
#!/bin/sh
# This file is a zip and an add-on of Vedette, for its installer: sudo sh {release}.zip --with {name}
{parts}
echo "vedette: $0 is an add-on of {release}.zip: sudo sh {release}.zip --with $0" >&2
exit 2
"""
ADDON_PARTS = ("ADDON", "ADDON.sig", PAYLOAD)


def _zip(members: Mapping[str, bytes], comment: str, folder: str = FOLDER) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """The bytes after the stub, and (position from 1 in the whole file, length) of each member's data."""
    buffer = io.BytesIO()
    buffer.write(bytes(STUB_BYTES))
    places = {}
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        file.comment = comment.encode()
        for name in sorted(members):
            info = zipfile.ZipInfo(f"{folder}/{name}", (1980, 1, 1, 0, 0, 0))
            info.create_system = 3
            mode = 0o755 if name in PROGRAMS else 0o600 if comment else 0o644
            info.external_attr = (0o100000 | mode) << 16
            file.writestr(info, members[name])
            places[name] = (buffer.tell() - len(members[name]) + 1, len(members[name]))
    return buffer.getvalue()[STUB_BYTES:], places


def archive(name: str, members: Mapping[str, bytes], comment: str = "") -> bytes:
    """The file ``name`` with ``members`` (without FOLDER; ``install.sh`` and PAYLOAD among them).

    With a ``comment`` its members are for their owner only when unzipped. Raises ValueError when the table of members
    outgrows the script's room.
    """
    data, places = _zip(members, comment)
    start, length = places.pop(PAYLOAD)
    stub = _STUB.format(
        name=name,
        size=STUB_BYTES + len(data),
        parts="\n".join(f"    part {at} {size} {member}" for member, (at, size) in places.items()),
        digest=hashlib.sha256(members["install.sh"]).hexdigest(),
        start=start,
        length=length,
    ).encode()
    if len(stub) > STUB_BYTES:
        raise ValueError(f"{name}: too many members for the script at its start: {len(members)}")
    return stub.ljust(STUB_BYTES, b"\n") + data


def addon(name: str, release: str, members: Mapping[str, bytes]) -> bytes:
    """The add-on file ``name`` with ADDON_PARTS; for the zip ``release``, named without its suffix."""
    data, places = _zip(members, "", name.removesuffix(".zip"))
    parts = "\n".join(f"# part {member} {at} {size}" for member, (at, size) in places.items())
    return _ADDON_STUB.format(release=release, name=name, parts=parts).encode().ljust(STUB_BYTES, b"\n") + data


def read(path: Path) -> dict[str, bytes]:
    """The members of the release, or of the add-on, in ``path``. Raises OSError, and ValueError when it is damaged or
    neither."""
    if (size := path.stat().st_size) > MAX_ARCHIVE:
        raise ValueError(f"{path}: {size} bytes are too many for a release; expects the zip that `make dist` writes")
    try:
        with zipfile.ZipFile(path) as file:
            if sum(info.file_size for info in file.infolist()) > MAX_ARCHIVE:
                raise ValueError(f"{path}: unpacks to too much for a release")
            if (damaged := file.testzip()) is not None:
                raise ValueError(f"{path}: {damaged} in it is damaged: copy it again")
            members = {name.partition("/")[2]: file.read(name) for name in file.namelist()}
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise ValueError(f"{path}: not a whole zip: {error}: copy it again") from error
    if members.keys() == {*ADDON_PARTS}:
        return members
    missing = {"install.sh", PAYLOAD, "SHA256SUMS", "RELEASE"} - members.keys()
    if missing:
        raise ValueError(f"{path}: not a release of Vedette: it has no {', '.join(sorted(missing))}")
    return members
