"""Which patterns of the configuration may take long on some texts. Pure; ``vedette check`` warns of them.

They harm nobody: each is bounded where it is asked (``decode/bounded.py``). But of a text at which one takes too long
its owner does not get what it is for.
"""

from __future__ import annotations

from collections.abc import Iterator

from vedette.config.settings import Config
from vedette.decode.bounded import QUARANTINE_AFTER, SECONDS, grows, why_slow
from vedette.inputs.settings import FileInput


def warnings(config: Config) -> Iterator[str]:
    """One line each."""
    for settings in config.input:
        many = settings.multiline if isinstance(settings, FileInput) else None
        for key, pattern in (("start", many.start), ("continue", many.continue_)) if many is not None else ():
            if why := why_slow(pattern.encode()):
                yield (
                    f"input {settings.name}: multiline.{key} may take long on some lines: {why}. A line on which it"
                    f" takes {SECONDS:g} s begins an event; after {QUARANTINE_AFTER} of them each line is one"
                )
    for i, rule in enumerate(config.redact):
        for j, expression in enumerate(rule.expressions):
            if why := grows(expression):
                yield (
                    f"redact[{i}].expressions[{j}] may take long on some texts: {why}. A text on which it does leaves"
                    " the host as a mark alone"
                )
