"""What a glob leads to: as Python's own finds it, and an end of it whatever lies there; and whose each path is."""

from __future__ import annotations

import glob
import inspect
import os
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.inputs.test_journalaccess import NOBODY
from vedette.inputs import globs
from vedette.inputs.condition import State
from vedette.inputs.files import belongs, condition, look
from vedette.inputs.globs import matches

TREE = ("a.log", ".b.log", "x/a.log", "x/b.txt", "x/.h/a.log", "x/y/a.log", "x/y/a1.log", "z/y/w/a.log", "[q]/a.log")


@pytest.mark.parametrize(
    "pattern",
    [
        "*",
        "*.log",
        ".*",
        "*/*.log",
        "*/a.log",
        "*/y/*",
        "*/none/a.log",
        "**",
        "x/**",
        "**/*.log",
        "**/y/*.log",
        "**/y/**/a*",
        "**/**/a.log",
        "**/a[0-9].log",
        "[[]q]/*",
        "a**g",
        "linked/*",
        "link*/*",
        "none/*",
        "a.log/*",
    ],
)
def test_as_pythons_own(tmp_path: Path, pattern: str) -> None:
    """The same files, with links to folders that are named, or found by a part of the pattern."""
    for name in TREE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "linked").symlink_to("x/y") if "**" not in pattern else None
    (tmp_path / "link.log").symlink_to("x/a.log")
    wanted = f"{tmp_path}/{pattern}"
    found = {path for path, _, _ in matches(wanted, set()) if not os.path.isdir(path)}
    assert found == {path for path in glob.glob(wanted, recursive=True) if not os.path.isdir(path)}
    assert all(belongs(path, [wanted]) for path in found)


def paths(pattern: str) -> dict[str, int]:
    return {path: user for path, user, _ in matches(pattern, set())}


def test_links_to_folders(tmp_path: Path) -> None:
    """``**`` goes through none that lead back: two have 2 to the power of 40 paths."""
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.log").touch()
    for name in ("here", "again", "x/up"):
        (tmp_path / name).symlink_to(tmp_path)
    assert [*paths(f"{tmp_path}/**/*.log")] == [f"{tmp_path}/x/a.log"]
    assert f"{tmp_path}/here/a.log" not in paths(f"{tmp_path}/*/**/a.log")
    (tmp_path / "y").symlink_to("x")
    assert f"{tmp_path}/y/a.log" in paths(f"{tmp_path}/*/**/a.log")


def test_links_to_folders_elsewhere(tmp_path: Path) -> None:
    """``**`` goes through those of the agent's user, and of root, once to each folder; not through others' links."""
    log, data = tmp_path / "log", tmp_path / "data"
    for folder in (log, data / "sub"):
        folder.mkdir(parents=True)
    (data / "sub" / "a.log").touch()
    (data / "back").symlink_to(data)
    for name in ("app", "app2"):
        (log / name).symlink_to(data)
    assert len(paths(f"{log}/**/*.log")) == 1
    (log / "app2").unlink()
    assert [*paths(f"{log}/**/*.log")] == [f"{log}/app/sub/a.log"]
    if os.geteuid() == 0:
        os.lchown(log / "app", NOBODY, NOBODY)
        assert not paths(f"{log}/**/*.log")


def entered(folder: int, name: str) -> int:
    """An open folder of an open folder, which is closed."""
    try:
        return os.open(name, os.O_RDONLY, dir_fd=folder)
    finally:
        os.close(folder)


def test_deeper_than_a_path_may_be(tmp_path: Path) -> None:
    """Folders in folders, as far as the kernel lets a path lead: what is there is found, and known again, without a
    frame of the stack for each."""
    name, depth, limit = "a folder's name", 270, sys.getrecursionlimit()
    deep = f"{tmp_path}{f'/{name}' * 220}/a.log"
    folder = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=folder)
        folder = entered(folder, name)
    Path(deep).touch()
    wanted = f"{tmp_path}/**/*.log"
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        assert [file.path for file in look([wanted]).files] == [deep]
        assert belongs(deep, [wanted])
        assert belongs(deep, [f"{tmp_path}/**/{name}/**/{name}/**/*.log"])
    finally:
        sys.setrecursionlimit(limit)
        os.unlink(deep)
        for _ in range(depth):  # nobody else deletes what is so deep
            folder = entered(folder, "..")
            os.rmdir(name, dir_fd=folder)
        os.close(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")
def test_whose_a_path_is(tmp_path: Path) -> None:
    """The first on the way that is not root's, a link rather than its target; a path that is named is its own."""
    for name, user in {"x": 0, "x/a.log": 7, "x/b.log": 0, "y": 8, "y/a.log": 9, "y/b.log": 0}.items():
        path = tmp_path / name
        path.touch() if name.endswith("log") else path.mkdir()
        os.chown(path, user, user)
    for link, target in {"x/c.log": "b.log", "z": "x"}.items():
        (tmp_path / link).symlink_to(target)
        os.lchown(tmp_path / link, NOBODY, NOBODY)
    found = {os.path.relpath(path, tmp_path): user for path, user in paths(f"{tmp_path}/**/*.log").items()}
    assert found == {"x/a.log": 7, "x/b.log": 0, "x/c.log": NOBODY, "y/a.log": 8, "y/b.log": 8}
    assert paths(f"{tmp_path}/z/*.log") == paths(f"{tmp_path}/z/[abc].log")
    assert paths(f"{tmp_path}/[z]/b.log") == {f"{tmp_path}/z/b.log": NOBODY}
    named = str(tmp_path / "x" / "a.log")
    assert [file.party for file in look([named]).files] == [named]
    for patterns in ([f"{tmp_path}/z*/a.log", f"{tmp_path}/x/*.log"], [f"{tmp_path}/x/*.log", f"{tmp_path}/z*/a.log"]):
        assert {file.party for file in look(patterns).files if file.key == look([named]).files[0].key} == {7}
    assert {file.party for file in look([f"{tmp_path}/x/a*", named, f"{tmp_path}/z*/a.log"]).files} == {named}


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")
@pytest.mark.parametrize("pattern", ["*/*.log", "**/*.log", "*/x*/*.log", "*/**/*.log", "*/x*/a.log"])
def test_more_of_one_user_than_are_looked_at(pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of files and of folders so many; of a folder of that user no more is read. Others' beside them are all there."""
    monkeypatch.setattr(globs, "MOST", 5)
    others = NOBODY - 1
    for name, user in (("own", NOBODY), ("shared", 0)):
        (tmp_path / name).mkdir()
        os.chown(tmp_path / name, user, user)
        for number in range(9):
            (tmp_path / name / f"x{number}").mkdir()
            for path in (tmp_path / name / f"{number}.log", tmp_path / name / f"x{number}" / "a.log"):
                path.touch()
                os.chown(path, NOBODY, NOBODY)
            os.chown(tmp_path / name / f"x{number}", NOBODY, NOBODY)
    for place in ("", "y/"):
        path = tmp_path / "shared" / f"{place}z.log"
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.chown(path, others, others)
    looks, lstat = list[str](), os.lstat

    def counted(path: str) -> os.stat_result:
        looks.append(path)
        return lstat(path)

    monkeypatch.setattr(os, "lstat", counted)
    files, problems = look([f"{tmp_path}/{pattern}"])
    users = Counter(file.party for file in files)
    assert users[NOBODY] == 5
    assert users[others] == {"*/*.log": 1, "**/*.log": 2, "*/**/*.log": 2}.get(pattern, 0)
    assert problems
    assert set(problems.values()) == {"more than 5 files or folders of one user are there: the others are not begun"}
    state, reason = condition(problems, [f"{tmp_path}/{pattern}"], there=True)
    assert state is State.FAILING
    assert f"{tmp_path}/" in reason
    own = [path for path in looks if path.startswith(f"{tmp_path}/own/") and path.endswith(".log")]
    assert len(own) <= 5
