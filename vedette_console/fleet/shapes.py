"""What all models of the fleet's side begin with.

Times are UTC as ISO 8601 with ``Z``, durations seconds, sizes bytes. Texts of agents, rules and events are as they
came: whoever shows them escapes them. Lists are bounded where they are made, and a ``…_count`` or ``total`` says how
many there are.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints

from vedette.system.within import NAME

Text = Annotated[str, StringConstraints(max_length=2000)]
Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]
Name = Annotated[str, StringConstraints(pattern=rf"^{NAME}$")]
RuleText = Annotated[str, StringConstraints(min_length=1, max_length=256 << 10)]
_PART = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}"
RequestId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]


class Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class Given(BaseModel):
    """What a caller sends: unknown keys are a mistake, not passed over."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RuleFile(Given):
    """A rule file of a proposal: ``path`` below the rules' folder (``linux/sshd.yml``), its whole new ``text``, None to
    remove it. ``NAME.test.yml`` beside a rule holds its test events."""

    path: Annotated[str, StringConstraints(pattern=rf"^{_PART}(/{_PART}){{0,7}}$")]
    text: Annotated[str, StringConstraints(max_length=256 << 10)] | None


class Finding(Model):
    """``severity``: "error", "warning", "note"; ``line`` and ``column`` from 1, 0: of the whole; ``check``: its name;
    ``hint``: what to write instead."""

    severity: Literal["error", "warning", "note"]
    check: str = ""
    path: str = ""
    line: int = 0
    column: int = 0
    title: str = ""
    message: str
    hint: str = ""


class Listed(Model):
    """A page of something: ``next`` is the cursor of the one after it."""

    total: int | None = None
    next: str | None = None
