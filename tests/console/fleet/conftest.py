"""These tests need python-tuf and the console's libraries (`make environment`)."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("tuf") and find_spec("fastapi") else ["*"]
