"""Starts the installed agent: the private Python with the packages beside this file, and nothing of the host's."""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.realpath(__file__)), "packages"))

if __name__ == "__main__":
    sys.argv[0] = "vedette"
    from vedette.cli.main import main

    sys.exit(main())
