"""The entry of the room: ``vedetted RELEASE/installer ACTION KEY=VALUE…``."""

import os
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

from installer.main import main

sys.exit(main(sys.argv[1:]))
