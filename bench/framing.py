"""How fast TCP's bytes are cut into messages: ``python -m bench.framing``. CPU time, the best of five."""

from __future__ import annotations

import time

from vedette.inputs.framing import StreamFramer

LINE = b"<38>Nov 20 10:00:00 web1 sshd[4711]: Accepted publickey for deploy from 203.0.113.9 port 22 ssh2"
READ = 256 << 10
ROUNDS = 100


def rate(message: bytes) -> float:
    """Messages a CPU-second."""
    buffer = bytearray(message * (READ // len(message)))
    framer, count, begin = StreamFramer(), 0, time.process_time()
    for _ in range(ROUNDS):
        framer.feed(buffer, len(buffer))
        count += sum(len(run.ends) if run.ends is not None else run.data.count(b"\n") for run in framer.take())
    return count / (time.process_time() - begin)


def main() -> None:
    for name, message in (("newlines", LINE + b"\n"), ("counted", b"%d %s" % (len(LINE), LINE))):
        print(f"{name}: {max(rate(message) for _ in range(5)) / 1e6:.1f} M messages a CPU-second")


if __name__ == "__main__":
    main()
