"""Paths and names from outside: what ``within`` lets by lies below the folder, whatever it is given."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.deep import examples
from vedette.system.within import MAX_NAME, MAX_PATH, NAME, is_name, is_path, resolved, within

PIECES = ("..", ".", "", "...", "/", "//", "\\", "..\\", "%2e%2e", "a", "b.yml", "in", "out", "loop", "~", "\0", "\n",
          "\x1b", "\x7f", "\x85", "\ud800", "．．", "‮", " ", "a" * MAX_NAME, "ä" * MAX_NAME)  # fmt: skip
PATHS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=8).map("/".join),
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join),
    st.text(max_size=40),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Beside a file that nobody may reach, with links that stay inside, lead out, and go round."""
    made = tmp_path / "folder"
    (made / "a").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "b.yml").write_text("secret")
    (made / "in").symlink_to("a")
    (made / "out").symlink_to(tmp_path / "secret")
    (made / "loop").symlink_to("loop")
    return made


@examples(600)
@given(PATHS)
@example("../secret/b.yml")
@example("out/b.yml")
@example("a/../../secret/b.yml")
def test_whatever_is_let_by_is_below(folder: Path, path: str) -> None:
    """It is refused by ValueError, or the kernel, too, finds it below the folder and not the folder itself."""
    try:
        place = within(folder, path)
    except ValueError:
        return
    real, top = os.path.realpath(place), os.path.realpath(folder)
    assert real.startswith(top + "/")
    assert place == folder / path
    assert is_path(path)
    assert ".." not in place.relative_to(folder).parts
    assert len(path.encode()) <= MAX_PATH


@pytest.mark.parametrize("path", [
    "", ".", "..", "/", "/etc/passwd", "a/", "a//b", "./a", "a/.", "a/..", "../folder/a", "a/../../secret/b.yml",
    "a\0b", "a\nb", "a\x9bb", "\ud800", "x" * (MAX_NAME + 1), "ä" * (MAX_NAME // 2 + 1), "/".join("x" * 600),
])  # fmt: skip
def test_no_path(folder: Path, path: str) -> None:
    """Refused with and without a folder."""
    assert not is_path(path)
    with pytest.raises(ValueError):  # noqa: PT011
        within(folder, path)


@pytest.mark.parametrize("path", ["out", "out/b.yml", "out/new.yml", "out/../a"])
def test_a_link_that_leads_out(folder: Path, path: str) -> None:
    """Refused, whether something is there or not."""
    with pytest.raises(ValueError):  # noqa: PT011
        within(folder, path)


@pytest.mark.parametrize(
    "path", ["a", "a/b.yml", "in/b.yml", "new/deep/b.yml", "...", "ä b.yml", "x" * MAX_NAME, "-rf"]
)
def test_paths(folder: Path, path: str) -> None:
    """Any name that Linux takes, through links that stay inside, whether something is there or not."""
    assert within(folder, path) == folder / path


@given(st.one_of(PATHS, st.from_regex(rf"\A{NAME}\Z")))
def test_a_name_is_a_path_of_one_part(text: str) -> None:
    """So it may be joined to any folder, and what is written before it is in place has no such name."""
    if is_name(text):
        assert is_path(text)
        assert "/" not in text
        assert not text.startswith(".")
        assert text.isascii()


def test_names() -> None:
    """Letters, digits, '.', '_', '-', no dot first, of bounded length; and nothing that is no text."""
    assert all(map(is_name, ("a", "web-1.example", "_", "-", "9", "a..b", "x" * 128)))
    assert not any(
        map(is_name, ("", ".", "..", ".a", "a/b", "a b", "a\n", "a\0", "ä", "x" * 129, None, 1, b"a", ["a"]))
    )
    assert is_name("x" * 64, 64)
    assert not is_name("x" * 65, 64)


def test_links_that_are_too_many(tmp_path: Path) -> None:
    """Where links lead, and an end of it: of more than anybody can follow the answer is the path itself."""
    (tmp_path / "target").touch()
    for number in range(1200):
        (tmp_path / f"{number}").symlink_to(f"{number + 1}")
    (tmp_path / "few").symlink_to("target")
    (tmp_path / "nowhere").symlink_to("none")
    assert resolved(tmp_path / "few") == str(tmp_path / "target")
    assert resolved(tmp_path / "nowhere") == str(tmp_path / "none")
    assert Path(resolved(tmp_path / "0")).parent == tmp_path
