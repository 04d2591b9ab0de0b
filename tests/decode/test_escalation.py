"""sudo, pkexec and doas: where a folder or an argument reads as what follows it, all that may be meant is given."""

from __future__ import annotations

from typing import Any

from tests.decode.test_decoder import program_line, read
from tests.differences import walk


@walk(
    ("program", "line", "wanted"),
    [
        ("sudo", "kim : TTY=pts/0 ; PWD=/tmp/x ; USER=b ; USER=root ; COMMAND=/bin/sh",
         {"target_user": ["b", "root"], "command": "/bin/sh", "pwd": ["/tmp/x", "/tmp/x ; USER=b"]}),
        ("sudo", "kim : PWD=/ ; USER=root ; ENV=PS1=x ; COMMAND=/bin/true ; COMMAND=/bin/sh",
         {"command": ["/bin/true ; COMMAND=/bin/sh", "/bin/sh"], "target_user": "root"}),
        ("sudo", "kim : (command continued) /x ; USER=root ; COMMAND=/bin/sh -i",
         {"command": ["/x ; USER=root ; COMMAND=/bin/sh -i", "/bin/sh -i"], "target_user": "root"}),
        ("doas", "kim ran command /bin/sh as root from /tmp/x as y z",
         {"target_user": "root", "command": "/bin/sh", "pwd": "/tmp/x as y z"}),
        ("doas", "kim ran command /bin/sh as root from /tmp/x as kim from /home/kim",
         {"pwd": ["/tmp/x as kim from /home/kim", "/home/kim"]}),
        ("doas", "kim ran command /bin/sh -c evil as a from as root from /home/kim",
         {"target_user": ["a", "root"], "command": ["/bin/sh -c evil", "/bin/sh -c evil as a from"]}),
        ("pkexec", "kim: x [USER=root] [TTY=x] [CWD=/tmp/] [COMMAND=a/evil] [COMMAND=/bin/sh]",
         {"pwd": ["/tmp/", "/tmp/] [COMMAND=a/evil"]}),
    ],
)  # fmt: skip
def test_readings(program: str, line: str, wanted: dict[str, Any]) -> None:
    """Also where one of them has no command, in the environment, in a piece of a record that is cut."""
    shown = read(program_line(program, line).encode())
    assert {name: shown.get(name) for name in wanted} == wanted


def test_long_readings() -> None:
    """Of few readings nothing is cut, and no decoy, however many, hides how a command begins or what it holds."""
    long = "y" * 3000
    for program, line, command in (
        ("sudo", f"kim : PWD=/x ; USER=b ; USER=root ; COMMAND=/bin/sh -c {long}e", f"/bin/sh -c {long}e"),
        ("sudo", f"kim : PWD=/ ; USER=root ; COMMAND=a ; COMMAND={long}e", f"{long}e"),
        ("pkexec", f"kim: x [USER=root] [TTY=x] [CWD=/] [COMMAND=a : ] [COMMAND=x {long}e]",
         f"a : ] [COMMAND=x {long}e"),
        ("pkexec", f"kim: x [USER=root] [TTY=x] [CWD=/] [COMMAND=a : ] [COMMAND=x {long}e]", f"x {long}e"),
        ("doas", f"kim ran command sh {long}e as root from /x as b", f"sh {long}e"),
        ("doas", f"kim ran command sh {' as b from ' * 3000} {long}e as root from /",
         f"sh {' as b from ' * 3000} {long}e"),
        ("sudo", f"kim : PWD=/ ; USER=root ; COMMAND=x{' ; COMMAND=a' * 3000} {long}e",
         f"x{' ; COMMAND=a' * 3000} {long}e"),
        ("pkexec", f"kim: x [USER=root] [TTY=x] [CWD=/{'] [COMMAND=a' * 370}] [COMMAND=sh -c e]", "sh -c e"),
    ):  # fmt: skip
        commands = read(program_line(program, line).encode()).get("command")
        assert command in (commands if isinstance(commands, list) else [commands]), line[:80]
