"""``python -m vedette``."""

from vedette.cli import main

main()
