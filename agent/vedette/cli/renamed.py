"""Options of the release before: accepted for this one, each with a warning.

The table is all there is of them: with a release that no longer takes an option its row goes. What ``region enroll``
did is now four commands; its old form is in ``region.py``.
"""

from __future__ import annotations

_BROKER = {"--ca": "--ca-file", "--cert": "--cert-file"}
OPTIONS: dict[tuple[str, ...], dict[str, str]] = {
    ("alerts",): {"--number": "--limit"},
    ("region", "publish"): _BROKER,
    ("region", "land"): {"--folder": "--landing", **_BROKER},
    ("region", "status"): {"--folder": "--landing"},
}
"""By command: the old name and the new one."""


def renew(args: list[str]) -> tuple[list[str], list[str]]:
    """``args`` of the command line with the names of today, and a warning for each old one."""
    command = next((path for path in OPTIONS if tuple(args[: len(path)]) == path), None)
    if command is None:
        return args, []
    end = args.index("--") if "--" in args else len(args)
    made, warnings = [], []
    for arg in args[:end]:
        name, sign, value = arg.partition("=")
        new = OPTIONS[command].get(name)
        if new is not None:
            warnings.append(f"{name} is now {new}; the next release refuses the old name")
        made.append(arg if new is None else new + sign + value)
    return made + args[end:], warnings
