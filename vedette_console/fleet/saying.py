"""``vedette`` with all that it says in a file: ``python -m vedette_console.fleet.saying FILE WORDS…``.

A parent of ``system/child.py`` gets the last line of standard error alone; a build has one for each rule that does not
run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    path = Path(sys.argv[1])
    said = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(said, 2)
    sys.argv = ["vedette", *sys.argv[2:]]
    from vedette.cli.main import main

    main()
