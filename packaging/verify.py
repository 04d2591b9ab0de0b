"""``vedetted verify.py KEY FILE SIGNATURE [FOLDER]``: exit code 0 when SIGNATURE (base64) is KEY's Ed25519 signature of
FILE; with FOLDER its files are there then, as FILE is the site.tar of a site's zip.

KEY is ``ed25519:BASE64``. install.sh runs it with the *installed* release, before anything of a new one is used; and
with the new one, once that is known to be good, on the site's part. Of that it takes plain files of known names alone:
install.sh gives them away as root, and no link, folder or device may lead it elsewhere.
"""

import base64
import io
import os
import sys
import tarfile

sys.path.append(os.path.join(os.path.dirname(os.path.realpath(__file__)), "packages"))

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

SITE = ("agent.key", "agent.pem", "region-ca.pem", "site.vbundle", "token", "vedette.toml")


def main(key: str, path: str, signature: str, folder: str = "") -> None:
    try:
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key.removeprefix("ed25519:"), validate=True))
        with open(path, "rb") as signed, open(signature, "rb") as file:
            data = signed.read()
            public.verify(base64.b64decode(file.read(), validate=False), data)
    except (InvalidSignature, ValueError):
        sys.exit(f"{path}: not signed by {key}")
    if folder:
        try:
            unpack(data, folder)
        except (tarfile.TarError, ValueError, OSError) as error:
            sys.exit(f"{path}: {error}")


def unpack(data: bytes, folder: str) -> None:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.type == tarfile.REGTYPE else None
            if content is None or member.name not in SITE:
                raise ValueError(f"{member.name!r} is not a plain file of a site")
            descriptor = os.open(os.path.join(folder, member.name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content.read())


main(*sys.argv[1:])
