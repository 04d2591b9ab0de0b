"""What the ELF files of wheels hold of other projects, linked statically, that no list in the wheel names.

``LINKED`` is written by hand, from the recipes by which these wheels are built; ``PARTS`` has of each part a mark in
the bytes of a file, with its version where the file tells that. A build looks for all marks in all files: a part that
is there and not listed, or listed and not there, stops it, and so does a wheel with an ELF file that has no row. A row
with a version in it names that of the wheel, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from shell import BuildError


class Part(NamedTuple):
    mark: bytes
    """A regular expression; its group is the version."""
    licence: str
    """SPDX expression."""
    supplier: str
    text: str = ""
    """Of licences/, where it is not that of the expression alone."""


class Linked(NamedTuple):
    name: str
    version: str
    """Empty: nothing tells."""
    part: Part
    files: list[Path]


PARTS = {
    "boost": Part(rb"_ZN5boost", "BSL-1.0", "Boost"),
    "curl": Part(rb"A libcurl function", "curl", "Daniel Stenberg and many contributors"),
    "http-parser": Part(rb"http_parser_parse_url", "MIT", "Joyent, Inc. and other Node contributors"),
    "libffi": Part(rb"\0ffi_prep_cif", "MIT", "Anthony Green, Red Hat, Inc. and others"),
    "librdkafka": Part(rb"librdkafka v%s .*? initialized", "BSD-2-Clause", "Confluent, Magnus Edenhill", "librdkafka"),
    "libstdc++": Part(rb"locale::facet::_S_create_c_locale name", "GPL-3.0-or-later WITH GCC-exception-3.1",
                      "Free Software Foundation"),
    "llhttp": Part(rb"llhttp_should_keep_alive", "MIT", "Fedor Indutny"),
    "lmdb": Part(rb"LMDB (\d+\.\d+\.\d+): ", "OLDAP-2.8", "Howard Chu, Symas Corp."),
    "openssl": Part(rb"OpenSSL (\d+\.\d+\.\d+)\w* \d{1,2} [A-Z][a-z]{2} \d{4}\0", "Apache-2.0", "The OpenSSL Project"),
    "pcre": Part(rb"_pcre_valid_utf", "BSD-3-Clause", "Philip Hazel, University of Cambridge", "pcre"),
    "rust-std": Part(rb"/rustc/([0-9a-f]{40})/library", "MIT OR Apache-2.0", "The Rust Project"),
    "vectorscan": Part(rb"\0(5\.\d+\.\d+) 20\d\d-\d\d-\d\d\0", "BSD-3-Clause AND BSD-2-Clause AND BSL-1.0",
                       "VectorCamp, Intel Corporation, Arm Limited", "vectorscan"),
    "zlib": Part(rb" deflate (\d[\d.]*\d) Copyright", "Zlib", "Jean-loup Gailly and Mark Adler"),
    "zstd": Part(rb"\0(1\.[5-8]\.\d+)\0", "BSD-3-Clause", "Meta Platforms, Inc. and affiliates"),
}  # fmt: skip
LINKED: dict[str, dict[str, str]] = {
    "cffi": {"libffi": ""},
    "confluent-kafka==2.16.1": {
        "librdkafka": "2.16.0",
        "curl": "",
        "openssl": "",
        "zlib": "",
        "zstd": "",
    },  # no SASL library; lz4, snappy and others are files of librdkafka's own sources
    "cryptography": {"openssl": "", "rust-std": ""},
    "httptools": {"http-parser": "", "llhttp": ""},
    "hyperscan==0.7.13": {"boost": "1.87.0", "libstdc++": "", "pcre": "8.45", "vectorscan": ""},
    "lmdb": {"lmdb": ""},
    "msgpack": {},
    "msgspec": {},
    "obstore": {"rust-std": ""},
    "orjson": {},
    "protobuf": {},
    "pyrage": {"rust-std": ""},
    "regex": {},
    "vedette-kernel": {"rust-std": ""},
    "zstandard": {"zstd": ""},
}
"""By wheel, with its version or without; a version that the file tells is empty."""


def linked(name: str, version: str, files: Iterable[Path]) -> Iterator[Linked]:
    """The parts in the ELF ``files`` of a wheel; raises BuildError where they are others than are listed."""
    rows = [LINKED[key] for key in (f"{name}=={version}", name) if key in LINKED]
    if not rows:
        raise BuildError(f"{name} {version} has ELF files: list in packaging/linked.py what they link statically")
    contents = {path: path.read_bytes() for path in files}
    present: dict[str, list[Path]] = {}
    for part, row in PARTS.items():
        if holders := [path for path, data in contents.items() if re.search(row.mark, data)]:
            present[part] = holders
    if present.keys() != rows[0].keys():
        there, listed = (", ".join(sorted(names)) or "nothing" for names in (present, rows[0]))
        raise BuildError(f"{name} {version} links {there} statically, and packaging/linked.py lists {listed}")
    for part, holders in present.items():
        mark = re.compile(PARTS[part].mark)
        read = {match.decode() for path in holders for match in mark.findall(contents[path])}
        versions = read if mark.groups else {rows[0][part]}
        for number in sorted(versions):
            yield Linked(part, number, PARTS[part], holders)
