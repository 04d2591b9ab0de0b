"""``vedetted take.py UPGRADE FOLDER KEY``: the release that the agent has fetched, into FOLDER, once KEY has signed it.

install.sh runs it with the *installed* release, as root where systemd is. UPGRADE is the agent's, who may be in wrong
hands: of it only plain files are read, each once, and what is used is the copy that was checked. In FOLDER are then the
parts of the zip; ``request``, lines of KEY=VALUE: ``id``, ``within``; and the add-ons that were asked for, under the
names by which the release's install.sh finds them, which looks who signed them.
"""

import base64
import hashlib
import os
import re
import stat
import sys
import zipfile

sys.path.append(os.path.join(os.path.dirname(os.path.realpath(__file__)), "packages"))

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

MAX_ZIP = 512 << 20
REQUEST = re.compile(
    rb"id=([0-9A-Za-z.+_~]{1,64}-[0-9a-f]{12})\nnonce=[0-9a-f]{16}\nzip=([0-9A-Za-z.+_~-]{1,80}\.zip)\nsha256=([0-9a-f]{64})\n"
    rb"within=([1-9][0-9]{0,5})\n((?:addon=[a-z][a-z0-9]{0,19} [0-9a-f]{64}\n){0,8})"
)
RELEASE = re.compile(r"version=([0-9A-Za-z.+_~]{1,64})\narch=([0-9a-z_]{1,20})\n")
PARTS = ("install.sh", "RELEASE", "payload.tar.gz", "release.pub", "SHA256SUMS", "SHA256SUMS.sig")


def main(upgrade: str, folder: str, key: str) -> None:
    try:
        source = os.open(upgrade, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        match = REQUEST.fullmatch(read(source, "request", 4096))
        if match is None:
            raise ValueError("not a request of this format")
        id, name, sha256, within, addons = (part.decode() for part in match.groups())
        path = os.path.join(folder, "release.zip")
        if copy(source, name, path) != sha256:
            raise ValueError(f"{name} is not the file that was asked for")
        unpack(path, folder, key)
        os.unlink(path)
        with open(os.path.join(folder, "SHA256SUMS"), "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        if id.rpartition("-")[2] != digest[:12]:
            raise ValueError(f"{name} is release {digest[:12]} and not {id}")
        with open(os.path.join(folder, "RELEASE"), encoding="ascii") as file:
            facts = RELEASE.match(file.read())
        for addon, sha256 in (line.removeprefix("addon=").split() for line in addons.splitlines()):
            if facts is None:
                raise ValueError(f"{name} takes no add-ons")
            target = f"vedette-{facts[1]}-linux-{facts[2]}-{addon}.zip"
            if copy(source, f"{name.removesuffix('.zip')}-{addon}.zip", os.path.join(folder, target)) != sha256:
                raise ValueError(f"the add-on {addon} of {name} is not the file that was asked for")
        with open(os.path.join(folder, "request"), "w", encoding="ascii") as out:
            out.write(f"id={id}\nwithin={within}\n")
    except InvalidSignature:
        sys.exit(f"refused: not signed by {key}, whose release was installed first")
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        sys.stderr.write(f"refused: {error}\n")
        sys.exit(13 if isinstance(error, OSError) and error.errno in (28, 122) else 1)


def opened(folder: int, name: str) -> int:
    """A plain file's descriptor."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_ZIP:
        raise ValueError(f"{name} is no plain file of at most {MAX_ZIP} bytes")
    return descriptor


def read(folder: int, name: str, most: int) -> bytes:
    with os.fdopen(opened(folder, name), "rb") as file:
        return file.read(most)


def copy(folder: int, name: str, path: str) -> str:
    """To ``path``; the SHA-256 of what was copied."""
    digest, size = hashlib.sha256(), 0
    with os.fdopen(opened(folder, name), "rb") as file, open(path, "xb") as out:
        while piece := file.read(1 << 20):
            size += len(piece)
            if size > MAX_ZIP:
                raise ValueError(f"{name} grows")
            digest.update(piece)
            out.write(piece)
    return digest.hexdigest()


def unpack(path: str, folder: str, key: str) -> None:
    """The parts of the zip, none other, each as SHA256SUMS has it, which ``key`` has signed."""
    with zipfile.ZipFile(path) as file:
        names = {f"vedette/{part}": part for part in PARTS}
        if {info.filename for info in file.infolist()} != names.keys():
            raise ValueError("the zip has other parts than a release: a zip of a site is no release for a fleet")
        if sum(info.file_size for info in file.infolist()) > MAX_ZIP:
            raise ValueError("the zip unpacks to too much")
        sums, signature = file.read("vedette/SHA256SUMS"), file.read("vedette/SHA256SUMS.sig")
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key.removeprefix("ed25519:"), validate=True))
        public.verify(base64.b64decode(signature), sums)
        listed = dict(line.split("  ", 1)[::-1] for line in sums.decode("ascii").splitlines())
        for name, part in names.items():
            data = file.read(name)
            if not part.startswith("SHA256SUMS") and listed.get(part) != hashlib.sha256(data).hexdigest():
                raise ValueError(f"{part} is not what SHA256SUMS says")
            with open(os.path.join(folder, part), "xb") as out:
                out.write(data)


main(*sys.argv[1:])
