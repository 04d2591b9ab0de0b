"""Screenshots small enough for the documentation: PNG with a palette of at most 256 colours.

The colours that most pixels have are kept as they are. All others share a few that lie among them; each becomes the
nearest that there is.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

COLOURS, EXACT = 256, 128
_DECODE = """async (data) => {
  const image = await createImageBitmap(await (await fetch("data:image/png;base64," + data)).blob());
  const canvas = new OffscreenCanvas(image.width, image.height), context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const pixels = context.getImageData(0, 0, image.width, image.height).data;
  let text = "";
  for (let at = 0; at < pixels.length; at += 32768) text += String.fromCharCode(...pixels.subarray(at, at + 32768));
  return [image.width, image.height, btoa(text)];
}"""


def pixels(page: Any, png: bytes) -> tuple[int, int, bytes]:
    """Width, height, and the pixels as RGBA; ``page``: one without a policy, in which they are decoded."""
    width, height, data = page.evaluate(_DECODE, base64.b64encode(png).decode())
    return width, height, base64.b64decode(data)


def palette(page: Any, png: bytes) -> bytes:
    """The picture with a palette."""
    width, height, data = pixels(page, png)
    colours = [data[at : at + 4] for at in range(0, len(data), 4)]
    counted = Counter(colours)
    exact = [colour for colour, _ in counted.most_common(COLOURS)]
    if len(counted) > COLOURS:
        exact[EXACT:] = _shared({colour: n for colour, n in counted.items() if colour not in set(exact[:EXACT])})
    place = {colour: number for number, colour in enumerate(exact)}
    for colour in counted.keys() - place.keys():
        place[colour] = min(range(len(exact)), key=lambda number: _apart(exact[number], colour))
    numbers = bytes(map(place.__getitem__, colours))
    rows = b"".join(b"\0" + numbers[at : at + width] for at in range(0, len(numbers), width))
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = ((b"IHDR", head), (b"PLTE", b"".join(colour[:3] for colour in exact)), (b"IDAT", zlib.compress(rows, 9)))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in (*parts, (b"IEND", b"")))


def _shared(counted: Mapping[bytes, int]) -> list[bytes]:
    """The middle of those that are alike in the upper bits of red, green and blue, where most pixels are."""
    alike: dict[bytes, Counter[bytes]] = defaultdict(Counter)
    for colour, n in counted.items():
        alike[bytes(part >> 5 for part in colour)][colour] = n
    most = sorted(alike.values(), key=lambda group: -group.total())[: COLOURS - EXACT]
    return [
        bytes(round(sum(colour[part] * n for colour, n in group.items()) / group.total()) for part in range(4))
        for group in most
    ]


def _apart(first: bytes, second: bytes) -> int:
    return sum((a - b) ** 2 for a, b in zip(first, second, strict=True))


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
