"""``vedetted verify.py KEY FILE SIGNATURE``: exit code 0 when SIGNATURE (base64) is KEY's Ed25519 signature of FILE.

KEY is ``ed25519:BASE64``. install.sh runs it with the *installed* release, before anything of a new one is used.
"""

import base64
import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.realpath(__file__)), "packages"))

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def main(key: str, path: str, signature: str) -> None:
    try:
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(key.removeprefix("ed25519:"), validate=True))
        with open(path, "rb") as signed, open(signature, "rb") as file:
            public.verify(base64.b64decode(file.read(), validate=False), signed.read())
    except (InvalidSignature, ValueError):
        sys.exit(f"{path}: not signed by {key}")


main(*sys.argv[1:])
