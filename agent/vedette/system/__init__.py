"""What the host gives: whole files, child processes, the wall clock, the service manager, the terminal.

Each module owns one outside thing; none knows what Vedette does with it.
Imports: model.
"""
