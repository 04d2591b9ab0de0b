"""``tools/jars.sh``: the jars of the tests are those that ``tools/jars/pom.xml`` names, or they are not there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
POM = """<project>
  <artifactId>jars</artifactId>
  <version>1</version>
  <profiles>
    <profile>
      <id>spark</id>
      <dependency>
        <artifactId>delta</artifactId>
        <version>{spark}</version>
        <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
      </dependency>
    </profile>
    <profile>
      <id>broker</id>
      <dependency>
        <artifactId>kafka_2.13</artifactId>
        <version>3.9.1</version>
      </dependency>
      <dependency>
        <artifactId>slf4j-nop</artifactId>
        <version>1.7.36</version>
      </dependency>
    </profile>
    <profile>
      <id>s3</id>
      <dependency>
        <artifactId>s3proxy</artifactId>
        <version>3.1.0</version>
      </dependency>
    </profile>
  </profiles>
</project>
"""
MAVEN = """#!/bin/sh
echo "$@" >>"{calls}"
[ -e "{reachable}" ] || exit 1
for word; do case $word in -DoutputDirectory=*) folder=${{word#*=}} ;; spark | broker | s3) set=$word ;; esac; done
mkdir -p "$folder" && touch "$folder/$set-fetched.jar"
"""
"""In place of Maven: it keeps what it was asked, and fetches when Maven Central is said to be reachable."""


class Tree:
    """A copy of the script with a pom and a Maven of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jars = folder / "build" / "jars"
        self.calls, self.reachable, self.bin = folder / "calls", folder / "reachable", folder / "bin"
        (folder / "tools" / "jars").mkdir(parents=True)
        shutil.copy(ROOT / "tools" / "jars.sh", folder / "tools")
        self.bin.mkdir()
        (self.bin / "mvn").write_text(MAVEN.format(calls=self.calls, reachable=self.reachable))
        (self.bin / "mvn").chmod(0o755)
        self.reachable.touch()
        self.pom("4.4.0")

    def pom(self, spark: str) -> None:
        (self.folder / "tools" / "jars" / "pom.xml").write_text(POM.format(spark=spark))

    def put(self, of: str, *names: str) -> None:
        (self.jars / of).mkdir(parents=True)
        for name in names:
            (self.jars / of / name).touch()

    def run(self, maven: bool = True) -> tuple[str, int]:
        """What it said, and how often Maven was asked."""
        self.calls.unlink(missing_ok=True)
        if not maven:
            (self.bin / "mvn").unlink()
            for tool in ("sh", "dirname", "awk", "sha256sum", "mkdir", "rm", "mv", "cat"):
                if (path := shutil.which(tool)) is not None:
                    (self.bin / tool).symlink_to(path)
        path = f"{self.bin}:{os.environ['PATH']}" if maven else str(self.bin)
        command = ["sh", str(self.folder / "tools" / "jars.sh")]
        done = subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout, len(self.calls.read_text().splitlines()) if self.calls.exists() else 0

    def there(self, of: str) -> list[str]:
        return sorted(path.name for path in (self.jars / of).glob("*.jar"))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_jars_are_fetched_once_for_each_pom(tree: Tree) -> None:
    """Fetched when they are not there and when the pom has changed, old ones then gone; otherwise not."""
    said, calls = tree.run()
    assert calls == 3
    for of in ("spark", "broker", "s3"):
        assert tree.there(of) == [f"{of}-fetched.jar"]
    assert "build/jars/spark: 1 jars" in said
    assert tree.run() == ("", 0)
    (tree.jars / "spark" / "delta-4.4.0.jar").touch()
    tree.pom("4.5.0")
    assert tree.run()[1] == 3
    assert tree.there("spark") == ["spark-fetched.jar"]
    assert tree.run() == ("", 0)


def test_jars_without_a_stamp(tree: Tree) -> None:
    """Jars that the pom names are taken as they are; where one of them lacks, or is of another version, all are
    fetched."""
    tree.put("spark", "delta-4.3.0.jar")
    tree.put("broker", "kafka_2.13-3.9.1.jar", "slf4j-nop-1.7.36.jar", "transitive-1.jar")
    tree.put("s3", "s3proxy-3.1.0.jar")
    assert tree.run()[1] == 1
    assert tree.there("spark") == ["spark-fetched.jar"]
    assert len(tree.there("broker")) == 3
    assert tree.run() == ("", 0)


@pytest.mark.parametrize("maven", [True, False], ids=["unreachable", "no Maven"])
def test_jars_that_cannot_be_fetched(tree: Tree, maven: bool) -> None:
    """Without Maven Central, or Maven, that is said and no failure: jars of another pom are gone, so that the tests
    skip, and those of this one stay."""
    tree.reachable.unlink()
    tree.put("spark", "delta-4.3.0.jar")
    tree.put("broker", "kafka_2.13-3.9.1.jar", "slf4j-nop-1.7.36.jar")
    tree.put("s3", "s3proxy-3.1.0.jar")
    said, _ = tree.run(maven)
    assert "will be skipped" in said
    assert ("see build/jars.log" if maven else "apt-get install maven") in said
    assert "broker" not in said
    assert not (tree.jars / "spark").exists()
    assert len(tree.there("broker")) == 2
