"""A folder as a .tar.gz with equal bytes for equal contents, its list of digests, and what it takes on a disk."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

from shell import digest


def list_files(stage: Path) -> None:
    """Write FILES.sha256, the digests of all files below ``stage``."""
    files = sorted(path for path in stage.rglob("*") if path.is_file())
    (stage / "FILES.sha256").write_text("".join(f"{digest(path)}  {path.relative_to(stage)}\n" for path in files))


def kib(stage: Path) -> int:
    """On a disk with blocks of 4 KiB."""
    return sum(-(-path.stat().st_size // 4096) * 4 if path.is_file() else 4 for path in stage.rglob("*"))


def pack(stage: Path) -> bytes:
    """``stage`` as a .tar.gz, equal for equal contents."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile("", "wb", 9, packed, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for path in sorted(stage.rglob("*")):
            info = tarfile.TarInfo(str(path.relative_to(stage)))
            info.mtime = 315532800  # 1980, the first year that zip knows, too
            if path.is_dir():
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(info)
            else:
                info.size, info.mode = path.stat().st_size, 0o755 if path.stat().st_mode & 0o100 else 0o644
                with path.open("rb") as file:
                    tar.addfile(info, file)
    return packed.getvalue()
