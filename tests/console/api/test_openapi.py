"""The API as its document says: each operation is asked by schemathesis for whatever the document allows, and does
not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.console.kit import Console, console
from vedette_console.security.principal import Grant, Role

CONFIG = Path(__file__).parent.parent / "schemathesis.toml"
LEFT_OUT = r"/events$|/users/\{name\}"
"""A stream without an end; and what takes the role of the one who asks."""


def run(served: Console, folder: Path, *options: str) -> str:
    """What schemathesis reports; fails with it when it found something. ``Allow`` is not looked at: it does not
    see that ``/rules/{rule_id}`` takes GET at ``/rules/lint``, too."""
    served.client().get("/api/v1/openapi.json")  # made now: schemathesis waits for it no longer than ten seconds
    _, token = served.store.tokens.add("root", "schemathesis", [Grant(Role.ADMIN)])
    command = [
        str(Path(sys.executable).parent / "schemathesis"), "--config-file", str(CONFIG), "run",
        f"{served.url}/api/v1/openapi.json", "-H", f"Authorization: Bearer {token}", "--seed", "1", "--no-color",
        "--generation-database", "none", "--request-timeout", "120", "--checks", "all", "--exclude-checks",
        "positive_data_acceptance,allow_header_conformance", *options,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
    return done.stdout


@pytest.mark.long
def test_every_operation(tmp_path: Path) -> None:
    """No answer is a server's error, undocumented, or of another shape; nothing invalid is taken; nothing is open that
    should not be."""
    with console(tmp_path) as served:
        out = run(
            served, tmp_path, "--max-examples", "3", "--phases", "examples,fuzzing", "--exclude-path-regex", LEFT_OUT
        )
        tested = re.search(r"Tested: (\d+)", out)
        assert tested is not None
        assert int(tested[1]) > 25


@pytest.mark.long
def test_operations_on_users(tmp_path: Path) -> None:
    """The same of what changes users, where the one who asks is the only admin."""
    with console(tmp_path) as served:
        run(served, tmp_path, "--max-examples", "5", "--include-path-regex", r"/users/\{name\}")


def test_the_document(tmp_path: Path) -> None:
    """It describes every operation, and how each may fail; it is open to all, and has no example of a secret."""
    with console(tmp_path) as served:
        document = served.client().get("/api/v1/openapi.json").json()
        operations = {
            f"{method.upper()} {path}": operation
            for path, item in document["paths"].items()
            for method, operation in item.items()
        }
        assert len(operations) > 25
        for name, operation in operations.items():
            assert operation.get("description"), name
            assert {"401", "403", "422", "503"} <= operation["responses"].keys(), name
            assert operation["tags"], name
        ids = [operation["operationId"] for operation in operations.values()]
        assert len(ids) == len(set(ids)), "names of operations are unique"
