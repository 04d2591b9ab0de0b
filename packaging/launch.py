"""Starts the installed agent: the private Python with the packages beside this file and those of the release's add-ons,
and nothing of the host's."""

import os
import sys

_HERE = os.path.dirname(os.path.realpath(__file__))
_ADDONS = os.path.join(_HERE, "addons")
sys.path.append(os.path.join(_HERE, "packages"))
if os.path.isdir(_ADDONS):
    sys.path += [os.path.join(_ADDONS, name, "packages") for name in sorted(os.listdir(_ADDONS)) if name[0] != "."]

if __name__ == "__main__":
    sys.argv[0] = "vedette"
    from vedette.cli.main import main

    sys.exit(main())
