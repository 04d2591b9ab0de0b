"""The modules of functions beside rule files: ``module.attr`` to all modules that it needs from there.

``FUNCTION … AS 'scale.celsius'`` in ``rules/plant.sql`` is in ``rules/scale.py`` or ``rules/functions/scale.py``; what
these import from the same folder comes along, whatever else must be installed where functions run. Nothing is executed
to find out.

``AS 'DISTRIBUTION:NAME'`` is an entry point of the group ``vedette.functions`` of an installed distribution: the
modules of its own top-level package come along, and travel with the rules like those of a file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from vedette.plan.query import Module, Modules
from vedette.system import plugins
from vedette.system.folders import read_regular

FOLDER = "functions"
MAX_MODULES = 64
MAX_BYTES = 1 << 20
"""Of the modules of one function."""
_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)


class Collected(NamedTuple):
    target: str
    """``module.attr``."""
    modules: Modules
    files: list[Path]


def collected(folder: Path, target: str) -> Collected:
    """The modules of ``module.attr`` for a rule file in ``folder``, or of an entry point. Raises ValueError."""
    own, roots = "", [folder, folder / FOLDER]
    if ":" in target:
        place, target = _installed(target)
        own, roots = target.partition(".")[0], [place]
    if not _TARGET.fullmatch(target):
        raise ValueError(f"{target!r:.60} is no module.attribute")
    name = target.rpartition(".")[0]
    for root in roots:
        if _file(root, name) is not None:
            break
    else:
        below = name.replace(".", "/")
        if own:
            raise ValueError(f"there is no {roots[0] / below}.py")
        raise ValueError(f"there is no module {name}: neither {folder / below}.py nor {folder / FOLDER / below}.py")
    by_name: dict[str, Module] = {}
    files: list[Path] = []
    waiting = [name]
    size = 0
    while waiting:
        module = waiting.pop()
        parts = module.split(".")
        for end in range(1, len(parts) + 1):
            below = ".".join(parts[:end])
            file = _file(root, below)
            if file is None or below in by_name:
                continue
            path, package = file
            try:
                source = read_regular(path, MAX_BYTES + 1).decode("utf-8")
                tree = ast.parse(source)
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(f"{path} cannot be read: {error}") from None
            except (SyntaxError, ValueError, RecursionError) as error:
                line = getattr(error, "lineno", None)
                raise ValueError(f"{path}{f':{line}' if line else ''}: {getattr(error, 'msg', error)}") from None
            size += len(source)
            if len(by_name) >= MAX_MODULES or size > MAX_BYTES:
                raise ValueError(f"{name} needs more than {MAX_MODULES} modules or {MAX_BYTES >> 20} MiB of them")
            by_name[below] = Module(below, package, source)
            files.append(path)
            waiting += (name for name in _imported(tree, below, package) if not own or name.partition(".")[0] == own)
    return Collected(target, Modules(tuple(sorted(by_name.values()))), files)


def _installed(label: str) -> tuple[Path, str]:
    """Of the entry point ``DISTRIBUTION:NAME`` the folder that its package is in, and ``module.attr``. Raises
    ValueError."""
    entries, mistakes = plugins.found([label])
    functions = [entry for entry in entries if entry.kind == "functions"]
    if mistakes:
        raise ValueError(mistakes[0].partition(": ")[2])
    if not functions:
        raise ValueError(f"{label} is no entry point of the group vedette.functions")
    target = functions[0].target.replace(":", ".")
    spec = find_spec(target.partition(".")[0])  # of a top-level name: nothing is imported
    if spec is None or not spec.has_location or spec.origin is None:
        raise ValueError(f"{label}: its module {target} is not there as a file")
    place = Path(spec.origin).parent
    return (place.parent if spec.submodule_search_locations else place), target


def _file(root: Path, name: str) -> tuple[Path, bool] | None:
    """The file of a module, and whether it is a package's."""
    path = root.joinpath(*name.split("."))
    if path.with_name(path.name + ".py").is_file():
        return path.with_name(path.name + ".py"), False
    if (path / "__init__.py").is_file():
        return path / "__init__.py", True
    return None


def _imported(tree: ast.Module, name: str, package: bool) -> Iterator[str]:
    """What a module may import, by name; also names that are none of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = name.split(".")[: None if package and node.level == 1 else (1 if package else 0) - node.level]
                base = ".".join([*above, *([node.module] if node.module else [])])
            if base:
                yield base
            yield from (f"{base}.{alias.name}".lstrip(".") for alias in node.names)
