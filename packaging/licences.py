"""The texts of licences in a release or an add-on: ``licences/NAME``, each there when a component needs it.

A licence by its SPDX identifier, or that of a component by its name, lies in licences/ beside this file; the long ones
are Debian's own, in /usr/share/common-licenses. An SPDX expression needs the text of every licence that it names.
"""

from __future__ import annotations

import re
from pathlib import Path

from shell import BuildError

COMMON = Path("/usr/share/common-licenses")
FOLDER = "licences"
HERE = Path(__file__).resolve().parent / FOLDER
EXPRESSION = re.compile(r"\(*[\w.+-]+\)*(?: +(?:AND|OR|WITH) +\(*[\w.+-]+\)*)*")
IS_TEXT = re.compile(r"(?i)(?:un)?licen[cs]e|copying|notice|copyright")
"""The beginning of the name of a file that holds one."""


class Texts:
    """Those of one archive, whose files lie in ``stage``. All methods give paths below it."""

    def __init__(self, stage: Path) -> None:
        self._stage = stage

    def put(self, name: str, data: bytes) -> str:
        target = self._stage / FOLDER / name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(data)
        return f"{FOLDER}/{name}"

    def by_name(self, name: str) -> str:
        """The text of a licence or of a component; raises BuildError where there is none."""
        common = re.sub(r"^(L?GPL-\d)\.0$", r"\1", re.sub(r"-(only|or-later)$", "", name))
        for path in (HERE / name, COMMON / common):
            if path.is_file():
                return self.put(path.name, path.read_bytes())
        raise BuildError(f"the licence {name} has no text: put it into {HERE}")

    def by_expression(self, expression: str) -> list[str]:
        """The texts of all licences that an SPDX expression names."""
        if not EXPRESSION.fullmatch(expression):
            raise BuildError(f"{expression!r} is no SPDX expression: give the text of that licence")
        names = re.findall(r"[\w.+-]+", expression)
        return [self.by_name(name) for name in sorted(set(names) - {"AND", "OR", "WITH"})]

    def of_debian(self, root: Path, package: str) -> list[str]:
        """The copyright file of a package that is unpacked in ``root``, which another package may bring, and the common
        licences that it refers to."""
        path = (root / "usr/share/doc" / package).resolve() / "copyright"
        if not path.is_file():
            raise BuildError(f"{package} has no copyright file: lock the package that has it, too (debs.py)")
        data = path.read_bytes()
        named = re.findall(r"/usr/share/common-licenses/([\w.-]*\w)", data.decode("utf-8", "replace"))
        return [self.put(path.parent.name, data), *(self.by_name(name) for name in sorted(set(named)))]
