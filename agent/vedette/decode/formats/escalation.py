"""sudo, pkexec and doas: a caller's folder may be named like what follows it, and no program marks where a name ends.

Where what ends the folder stands more than once in a message, nothing tells which one is the program's. All that may be
meant is given then: every user, every command. So whoever names a folder can add a reading, and hide none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from vedette.decode.formats.base import Fields
from vedette.decode.phrases import SUDO_REST

READINGS = 1024
"""A folder's path has 4,096 bytes at most, and so the chroot's: no more can stand in both."""
LOOKED_AT = 2048
"""Characters of a reading that are looked at, where there are several."""
_USER = re.compile(r" ; USER=")
_REST = re.compile(SUDO_REST, re.S)
_CWD_END = re.compile(r"\] \[COMMAND=")
_AS = re.compile(r" as (\S+)(?= from |$)")
_RAN = " ran command "


def sudo(message: str) -> Fields:
    """Of ``… ; PWD=FOLDER ; USER=NAME ; … ; COMMAND=…``; nothing where there is one reading."""
    return _all(
        match.groupdict()
        for end in islice(_USER.finditer(message), READINGS)
        if (match := _REST.match(message, end.end() - len("USER="), end.end() + LOOKED_AT))
    )


def pkexec(message: str) -> Fields:
    """Of ``… [CWD=FOLDER] [COMMAND=…]``, likewise."""
    last = len(message) - message.endswith("]")
    return _all(
        {"command": message[end.end() : last][:LOOKED_AT]} for end in islice(_CWD_END.finditer(message), READINGS)
    )


def doas(message: str) -> Fields:
    """Of ``NAME ran command … as NAME from FOLDER``, likewise."""
    begin = message.find(_RAN) + len(_RAN)
    if begin < len(_RAN):
        return {}
    return _all(
        {"target_user": end[1][:LOOKED_AT], "command": message[begin : end.start()][:LOOKED_AT]}
        for end in islice(_AS.finditer(message, begin), READINGS)
    )


def _all(readings: Iterator[dict[str, str | None]]) -> Fields:
    values: dict[str, dict[str, None]] = {}
    for reading in readings:
        for name, value in reading.items():
            if value is not None:
                values.setdefault(name, {})[value] = None
    return {name: list(of_name) for name, of_name in values.items() if len(of_name) > 1}
