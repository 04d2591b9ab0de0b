"""What is done when no descriptor is left."""

from __future__ import annotations

import subprocess
import sys


def test_a_module_is_imported_without_a_descriptor() -> None:
    """By the spare one, which is there again afterwards."""
    program = """
import os, resource, sys
from vedette.decode.formats import base, table
from vedette.system import descriptors
descriptors.SPARE.keep()
base.load = descriptors.importing
free = os.dup(0)
os.close(free)
resource.setrlimit(resource.RLIMIT_NOFILE, (free, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
for _ in range(2):
    assert table.LEEF.read("LEEF:1.0|V|P|1|e|usrName=bob")["user"] == "bob"
assert descriptors.SPARE._fd >= 0
"""
    subprocess.run([sys.executable, "-B", "-c", program], check=True)
