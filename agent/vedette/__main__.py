"""``python -m vedette``."""

from vedette.cli import main

main(prog_name="vedette")
