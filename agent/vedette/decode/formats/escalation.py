"""sudo, pkexec and doas: a caller's folder may be named like what follows it, and no program marks where a name ends.

Where what ends the folder stands more than once in a message, nothing tells which one is the program's. All that may be
meant is given then: every user, every command, every folder. So whoever names a folder, or writes an argument, can add
a reading, and hide none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from vedette.decode.formats.base import Fields
from vedette.decode.phrases import SUDO_CONTINUED, SUDO_REST

READINGS = 2048
"""Half of them the first: a folder's path, of 4,096 bytes at most, cannot hold more, and so the chroot's. Half the
last, as doas names the folder behind the command."""
LOOKED_AT = 2 << 20
"""Characters of all readings that are looked at, as many of each; but all of the first and of the last, of which one
holds all others."""
_PART = re.compile(r" ; (?=(USER=)|COMMAND=)")
_REST = re.compile(SUDO_REST, re.S)
_CONTINUED = re.compile(SUDO_CONTINUED, re.S)
_FOLDER = re.compile(r"[CP]WD=")
_CWD_END = re.compile(r"\] \[COMMAND=")
_AS = re.compile(r" as (\S+)(?= from |$)")
_RAN = " ran command "


def sudo(message: str) -> Fields:
    """Of ``… ; PWD=FOLDER ; USER=NAME ; … ; COMMAND=…``, in which the environment is the caller's, too."""
    readings = [_CONTINUED.match(message)]
    folder = _FOLDER.search(message)
    folders = list[dict[str, str | None]]()
    for end, most in _ends(_PART, message):
        readings.append(_REST.match(message, end.end(), end.end() + most))
        if folder and end[1]:
            folders.append({"pwd": message[folder.end() : end.start()][-most:]})
    return _all([*(reading.groupdict() for reading in readings if reading), *folders])


def pkexec(message: str) -> Fields:
    """Of ``… [CWD=FOLDER] [COMMAND=…]``, likewise."""
    last = len(message) - message.endswith("]")
    folder = message.find("[CWD=") + len("[CWD=")
    return _all(
        {"pwd": message[folder : end.start()][-most:], "command": message[end.end() : last][:most]}
        for end, most in _ends(_CWD_END, message)
    )


def doas(message: str) -> Fields:
    """Of ``NAME ran command … as NAME from FOLDER``, likewise."""
    begin = message.find(_RAN) + len(_RAN)
    return _all(
        {
            "target_user": end[1][:most],
            "command": message[begin : end.start()][-most:],
            "pwd": message[end.end() + len(" from ") :][:most] or None,
        }
        for end, most in _ends(_AS, message, begin)
        if begin >= len(_RAN)
    )


def _ends(pattern: re.Pattern[str], message: str, begin: int = 0) -> list[tuple[re.Match[str], int]]:
    """Where a folder may end, and how many characters of what this means are looked at."""
    ends = [*pattern.finditer(message, begin)]
    del ends[READINGS // 2 : -READINGS // 2]
    whole = {0, len(ends) - 1}
    return [(end, len(message) if i in whole else LOOKED_AT // len(ends)) for i, end in enumerate(ends)]


def _all(readings: Iterable[dict[str, str | None]]) -> Fields:
    values: dict[str, dict[str, None]] = {}
    for reading in readings:
        for name, value in reading.items():
            if value is not None:
                values.setdefault(name, {})[value.strip(" ")] = None
    return {name: list(of_name) if len(of_name) > 1 else next(iter(of_name)) for name, of_name in values.items()}
