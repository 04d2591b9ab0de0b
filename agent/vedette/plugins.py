"""What plugins import: the protocols of their kinds, and what these take and give (docs/plugins.md).

Names of this module change as docs/plugins.md says; nothing else of Vedette is promised to plugins.
"""

from __future__ import annotations

from vedette.model.plugins import Decoder, Feed, Input, Lookup, Sink, Stopped
from vedette.sinks.base import Answer, Verdict

__all__ = ["Answer", "Decoder", "Feed", "Input", "Lookup", "Sink", "Stopped", "Verdict"]
