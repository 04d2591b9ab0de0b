"""``python -m vedette``."""

from vedette.cli.main import main

main(prog_name="vedette")
