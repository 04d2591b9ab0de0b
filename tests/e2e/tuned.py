"""``vedette`` with other constants than the product's: smaller segments, shorter waits.

``python tuned.py '{"segment_bytes": 4096}' COMMAND …`` sets what CONSTANTS names, then runs the command.
"""

from __future__ import annotations

import json
import sys
from functools import reduce
from importlib import import_module
from pathlib import Path

CONSTANTS = {
    "segment_bytes": "vedette.config.settings:RawLogSettings.segment_bytes",
    "rules_poll": "vedette.runtime.rulesets.active:POLL_SECONDS",
    "files_poll": "vedette.inputs.settings:FileInput.poll",
    "nft": "vedette.response.nft:NFT",
    "nft_poll": "vedette.runtime.options.response:POLL_SECONDS",
}
"""MODULE:ATTRIBUTE of each constant, set in this order: in a module before one that imports it from there."""


def tuned(**constants: object) -> tuple[str, ...]:
    """The program, for ``Process.program``: ``vedette`` with these constants."""
    assert constants.keys() <= CONSTANTS.keys()
    return sys.executable, "-P", __file__, json.dumps(constants, default=str)


def _set(place: str, value: object) -> None:
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    owner = reduce(getattr, owners, import_module(module))
    kind = Path if isinstance(getattr(owner, name), Path) else type(getattr(owner, name))
    setattr(owner, name, kind(value))


if __name__ == "__main__":
    chosen = json.loads(sys.argv.pop(1))
    for constant in filter(chosen.__contains__, CONSTANTS):
        _set(CONSTANTS[constant], chosen[constant])
    from vedette.cli.main import main

    main(prog_name="vedette")
