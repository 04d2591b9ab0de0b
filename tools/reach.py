"""Which tests a change can reach.

    python -m tools.reach [BASE]    the files of tests that it does, one a line; after an empty line the others
    python -m tools.reach --base    BASE where none is named
    python -m tools.reach --mine    the files reached by what ``origin``'s main lacks, uncommitted files included; all
                                    where it lacks nothing

BASE is the commit before the change: where this branched off ``origin``'s main, else the fiftieth commit before this
one. A module reaches what imports it, also within a function, and what
names it in a string (``"vedette.runtime.offline.hunt"``, for ``python -m`` or ``import_module``). What starts one of
``PROGRAMS`` is reached by all modules of it. Other files reach by ``DATA``, and whatever names them. A file that no
rule knows reaches all tests.

Each part is in an order that changes from day to day, so that a run which has no time for all takes others tomorrow.
"""

from __future__ import annotations

import ast
import datetime
import hashlib
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Container, Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = {
    "agent": "agent/",
    "spark_jobs": "",
    "vedette_console": "",
    "tests": "",
    "bench": "",
    "demo": "",
    "tools": "",
}
"""Top folders of modules, and what of a path is no part of a module's name."""
PROGRAMS = {
    "vedette": r"\"-m\", \"vedette\"|tests\.warm|tests\.e2e\.agent|tests\.install",
    "spark_jobs": r"\"-m\", \"spark_jobs\"|vedette-spark|tests\.spark_jobs",
    "vedette_console": r"vedette_console\.server|tests\.console\.kit|region\", \"console",
}
"""What starts a program: by its package, a pattern in the text of a module."""
DATA = {
    "agent/kernel/": r"^tests/(engine|differential|kernel|decode|stream|runtime|fuzz|e2e|install)/",
    "vedette_console/": r"^tests/(console/|e2e/test_console)",
    "spark_jobs/": r"^tests/spark_jobs/",
    "rules/": r"^tests/(rules|differential|e2e|engine|runtime|bundle|install)/|^tests/test_examples",
    "examples/": r"^tests/(test_examples|test_docs|config/)",
    "packaging/": r"^tests/(install/|test_lock|kernel/)",
    "install.sh": r"^tests/install/",
    "docs/": r"^tests/(test_docs|test_words)",
    "README.md": r"^tests/(test_docs|test_words)",
    "CHANGELOG.md": r"^tests/(test_docs|test_words)",
    "CONTRIBUTING.md": r"^tests/(test_docs|test_words)",
}
"""What files that are no modules reach: by their first folder, a pattern of paths of tests."""
COMMITS = 50


def module(path: str) -> str | None:
    """The module's name of a file; None where it is none."""
    top = path.partition("/")[0]
    if not path.endswith(".py") or top not in SOURCES:
        return None
    return path.removeprefix(SOURCES[top]).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def needs(tree: ast.AST, modules: Container[str]) -> set[str]:
    """The modules that code imports, or names in a string."""
    names, waiting = set[str](), [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a docstring
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            names |= set(re.findall(r"[\w.]+", node.value))
    names |= {name.rpartition(".")[0] for name in names}  # the package of what is imported runs first
    return {name for name in names if name in modules}


class Graph:
    """Who is reached by whom, in a folder with the project's files (paths relative to it)."""

    def __init__(self, root: Path, files: Iterable[str]) -> None:
        self.files = sorted(files)
        self.tests = [path for path in self.files if re.fullmatch(r"tests/(.*/)?test_\w+\.py", path)]
        self.texts = {path: (root / path).read_text() for path in self.files if module(path)}
        self.paths = {name: path for path in self.texts if (name := module(path))}
        self.dependants: defaultdict[str, set[str]] = defaultdict(set)
        for path, text in self.texts.items():
            tree = ast.parse(text)
            if path.endswith("conftest.py"):
                self._add_fixtures(path, tree)
                continue
            for name in needs(tree, self.paths):
                self.dependants[self.paths[name]].add(path)
            for package, starts in PROGRAMS.items():
                if path.startswith("tests/") and re.search(starts, text):
                    for name, other in self.paths.items():
                        if name.partition(".")[0] == package:
                            self.dependants[other].add(path)

    def _add_fixtures(self, path: str, tree: ast.Module) -> None:
        """What a conftest itself needs reaches all tests beside and below it; what one of its functions needs, those
        that name the function."""
        below = {test for test in self.tests if test.startswith(path.removesuffix("conftest.py"))}
        self.dependants[path] |= below
        for part in tree.body:
            users = below
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and "autouse" not in ast.unparse(part):
                users = {test for test in below if re.search(rf"\b{part.name}\b", self.texts[test])}
            for name in needs(part, self.paths):
                self.dependants[self.paths[name]] |= users

    def reached(self, changed: Iterable[str]) -> set[str]:
        """The test files that a change of these files can reach."""
        waiting, seen = [], set()
        for path in changed:
            placed = path in self.texts
            waiting.append(path)
            folder = path.rpartition("/")[0]
            name = re.escape(path.rpartition("/")[2])
            if not placed:
                named = [other for other, text in self.texts.items() if re.search(rf"\b{name}\b", text)]
                waiting += [other for other in named if not path.endswith(".md") or other.startswith("tests/")]
            for prefix, pattern in DATA.items():
                if not placed and path.startswith(prefix):
                    placed = True
                    waiting += [test for test in self.tests if re.search(pattern, test)]
            if not placed and path.startswith("tests/") and folder.count("/"):
                placed = True
                waiting += [test for test in self.tests if test.startswith(f"{folder}/")]
            if not placed:
                return set(self.tests)
        while waiting:
            path = waiting.pop()
            if path not in seen:
                seen.add(path)
                waiting += self.dependants.get(path, ())
        return seen & set(self.tests)


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def base() -> str:
    """The commit before the change; that of nothing where there is none, and all is new."""
    fork, head = git("merge-base", "HEAD", "origin/main"), git("rev-parse", "HEAD")
    if fork and fork != head:
        return fork
    return git("rev-parse", "--verify", "-q", f"HEAD~{COMMITS}") or git("hash-object", "-t", "tree", "/dev/null")


def today(path: str) -> str:
    """Sorts files in another way each day."""
    return hashlib.sha256(f"{datetime.date.today()} {path}".encode()).hexdigest()


def mine() -> set[str]:
    """The files of tests that ``--mine`` prints."""
    fork = git("merge-base", "HEAD", "origin/main") or "HEAD"
    new = git("ls-files", "--others", "--exclude-standard").splitlines()
    graph = Graph(ROOT, [path for path in [*git("ls-files").splitlines(), *new] if (ROOT / path).exists()])
    return graph.reached([*git("diff", "--name-only", fork).splitlines(), *new]) or set(graph.tests)


def main() -> None:
    before = sys.argv[1] if sys.argv[1:] else base()
    if before in ("--base", "--mine"):
        lines = [base()] if before == "--base" else sorted(mine())
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        return
    graph = Graph(ROOT, git("ls-files").splitlines())
    reached = graph.reached(git("diff", "--name-only", before, "HEAD").splitlines())
    others = set(graph.tests) - reached
    sys.stdout.write("".join(f"{path}\n" for path in [*sorted(reached, key=today), "", *sorted(others, key=today)]))


if __name__ == "__main__":
    main()
