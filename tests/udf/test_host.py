"""A child process answers for functions, and outlives nothing that a function does: each harm is one row's failure."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from tests.waits import until
from vedette.plan.query import Module, Modules, Type
from vedette.stream.userfunctions import Broken, Spec
from vedette.udf.host import Host, Limits

BIGINT, STRING = Type("BIGINT"), Type("STRING")
HEAD = "from pyflink.table import DataTypes\nfrom pyflink.table.udf import *\nfrom pyflink.table.udf import udf, udtf\n"


@pytest.fixture
def host() -> Iterator[Host]:
    made = Host(Limits(seconds=0.05))
    yield made
    made.close()


def modules(source: str, **more: str) -> Modules:
    named = {"f": HEAD + source, **more}
    return Modules(tuple(Module(name, False, text) for name, text in sorted(named.items())))


def spec(of: Modules, args: tuple[Type, ...] = (BIGINT,), result: Type = BIGINT) -> Spec:
    return Spec(of.digest, "f.g", "eval", args, (result,))


def answered(host: Host, source: str, rows: list[Any], **types: Any) -> tuple[list[Any], dict[int, str]]:
    """Values of ``g`` for rows of one argument, and failures."""
    of = modules(source)
    host.know((of,))
    answers = host.call(spec(of, **types), [(one,) for one in rows])
    return list(answers.values), dict(answers.failed)


def scalar(body: str, result: str = "BIGINT") -> str:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"@udf(result_type='{result}')\ndef g(n):\n{lines}"


def test_values_come_back_in_order(host: Host) -> None:
    """More rows than a batch holds; NULL goes in and out."""
    rows = [*range(1000), None]
    values, failed = answered(host, scalar("return n and n * 2"), rows)
    assert values == [*(n * 2 for n in range(1000)), None]
    assert not failed
    assert host.started == 1


def test_no_process_before_the_first_row(host: Host) -> None:
    host.know((modules(scalar("return n")),))
    assert host.status()["processes"] == 0


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ("raise ValueError('not this one')", "f.py:7: ValueError: not this one"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("return 'text'", "gave str 'text', not BIGINT"),
        ("return 1 << 63", "not BIGINT"),
        ("def h(n): return h(n)\nreturn h(n)", "RecursionError"),
        ("return len(bytearray(1 << 30))", "MemoryError"),
        ("while True: pass", "took more than 0.05 s of CPU"),
        ("while True:\n    try:\n        while True: pass\n    except Exception: pass", "took more than 0.05 s of CPU"),
    ],
)
def test_a_row_fails_alone(host: Host, harm: str, said: str) -> None:
    """Whatever the function does in Python on one row, all others have their values, in the same process."""
    body = "if n == 5:\n" + "".join(f"    {line}\n" for line in harm.splitlines() if line) + "return n"
    values, failed = answered(host, scalar(body), list(range(10)))
    assert [*failed] == [5]
    assert said in failed[5]
    assert values == [0, 1, 2, 3, 4, None, 6, 7, 8, 9]
    assert (host.started, host.died) == (1, 0)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ("import os; os._exit(3)", "it ended with code 3"),
        ("import os; os.write(4, b'\\xff' * 100)", "its answer is too long"),
        ("import os; os.write(4, (3 << 20 | 1).to_bytes(4, 'little'))", "its answer is too long"),
        ("import os; os.write(4, b'\\1\\0\\0\\0\\1')", "its answer is none"),
        ("import ctypes; ctypes.string_at(0)", "signal 11"),
        ("import time; time.sleep(60)", "it sleeps in place of answering"),
        ("sum(range(10 ** 12))", "it took more than 0.25 s of CPU for an answer"),
    ],
)
def test_a_row_that_ends_the_process(host: Host, harm: str, said: str) -> None:
    """The process is started again, and asked row by row: the others have their values."""
    values, failed = answered(host, scalar(f"if n == 5:\n    {harm}\nreturn n"), list(range(10)))
    assert [*failed] == [5]
    assert said in failed[5]
    assert values == [0, 1, 2, 3, 4, None, 6, 7, 8, 9]
    assert host.died == 2


def test_answers_that_are_long_together(host: Host) -> None:
    """Come in parts, by their bytes and not by their characters."""
    values, failed = answered(host, scalar("return chr(0x6F22) * 200_000", "STRING"), list(range(30)), result=STRING)
    assert not failed
    assert values == [chr(0x6F22) * 200_000] * 30
    assert host.died == 0


def test_a_child_that_something_else_killed(host: Host) -> None:
    """The batch is asked again: nothing is lost, and nothing counts as failed."""
    source = scalar("return n + 1")
    assert answered(host, source, [1, 2]) == ([2, 3], {})
    for pid in host.pids():
        os.kill(pid, signal.SIGKILL)
    assert answered(host, source, [3, 4]) == ([4, 5], {})
    assert (host.started, host.died) == (2, 1)


def test_noise_goes_nowhere(host: Host, capfd: pytest.CaptureFixture[str]) -> None:
    """What a function prints neither reaches the terminal nor the answers."""
    body = "import sys, os\nprint('x' * 100000)\nsys.stderr.write('y')\nos.write(1, b'z')\nreturn n"
    assert answered(host, scalar(body), [1, 2]) == ([1, 2], {})
    assert capfd.readouterr() == ("", "")


DEEDS = (
    "import os\nreturn os.fork()",
    "import subprocess\nreturn subprocess.call(['/bin/true'])",
    "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_STREAM)\nreturn 1",
    "import socket\nsocket.socket(socket.AF_UNIX, socket.SOCK_STREAM)\nreturn 1",
    "import os\nos.kill(os.getppid(), 0)\nreturn 1",
    "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nif libc.ptrace(16, os.getppid(), 0, 0):\n"
    "    raise OSError\nreturn 1",
    "with open('/tmp/vedette-udf-test', 'w') as file:\n    file.write('x')\nreturn 1",
)


def test_what_the_kernel_refuses(host: Host) -> None:
    """No processes, no programs, no sockets, no signals, no writing."""
    if "seccomp" not in isolation(host):
        pytest.skip("this kernel has no seccomp")
    body = "\n".join(f"if n == {n}:\n{indent(deed, '    ')}" for n, deed in enumerate(DEEDS))
    values, failed = answered(host, scalar(body), [*range(len(DEEDS))])
    assert values == [None] * len(DEEDS), failed
    assert all("Error" in why for why in failed.values()), failed
    assert len(failed) == len(DEEDS)


def test_files_are_out_of_reach(host: Host, tmp_path: Path) -> None:
    """Keys and configuration of the agent cannot be read, nor its environment."""
    if "landlock" not in isolation(host):
        pytest.skip("this kernel has no Landlock")
    secret = tmp_path / "key.pem"
    secret.write_text("secret")
    for path in (str(secret), "/etc/hostname", f"/proc/{os.getpid()}/environ"):
        _, failed = answered(host, scalar(f"return len(open({path!r}).read())"), [1])
        assert "PermissionError" in failed[0], path


def test_what_a_child_inherits(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """No descriptors of the agent, nothing of its environment, another session, below its priority."""
    monkeypatch.setenv("SECRET", "x")
    with socket.socket() as open_socket:
        os.set_inheritable(open_socket.fileno(), True)
        body = f"import os\ntry:\n    os.fstat({open_socket.fileno()})\n    return -1\nexcept OSError: pass\n"
        body += f"return ('SECRET' in os.environ) + (os.getsid(0) == {os.getsid(0)}) * 10 + os.nice(0) * 100"
        values, failed = answered(host, scalar(body), [1])
    assert values == [min(19, os.nice(0) + 10) * 100], failed


def isolation(host: Host) -> tuple[str, ...]:
    answered(host, scalar("return n"), [1])
    return host.isolation


def test_modules_that_cannot_be_imported(host: Host) -> None:
    """At run time the function is broken, for good; a look says the module's line."""
    broken = modules("import numpy_that_is_not_there\n" + scalar("return n"))
    with pytest.raises(ValueError, match=r"f.py:4: ModuleNotFoundError: No module named"):
        host.describe(broken, "f.g")
    with pytest.raises(Broken, match="ModuleNotFoundError"):
        host.call(spec(broken), [(1,)])
    ending = modules("import os; os._exit(1)")
    with pytest.raises(ValueError, match="importing it does not end well"):
        host.describe(ending, "f.g")


def test_a_process_that_never_answers_is_given_up(host: Host) -> None:
    """Rows on which it ends are few, and so are starts in succession."""
    of = modules("import os; os._exit(1)\n")
    host.know((of,))
    with pytest.raises(Broken, match="did not survive it: it ended with code 1"):
        host.call(spec(of), [(1,)] * 20)
    assert host.died == 4
    small = Host(Limits(memory=8 << 20))  # less than Python takes
    small.know((of,))
    with pytest.raises(Broken, match="ended 5 times before an answer"):
        small.call(spec(of), [(1,)])


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("", "f.g", "the module f has no g"),
        ("def g(n): return n", "f.g", "is no function made by udf"),
        ("class g(ScalarFunction):\n    def eval(self, n): return n", "f.g", "g is a class"),
        ("class G(ScalarFunction): ...\ng = udf(G, result_type='INT')", "f.g", "G is a class: give an object"),
        ("g = udf(lambda n: n)", "f.g", "udf names its result_type"),
        ("g = udf(lambda n: n, result_type='NUMBER')", "f.g", "'NUMBER' is no type"),
        ("g = udf(lambda n: n, result_type=DataTypes.INT(), func_type='pandas')", "f.g", "is not supported"),
        ("from pyflink.table.udf import ListView\n", "f.g", "cannot import name 'ListView'"),
        ("from pyflink.table.udf import udtaf\n", "f.g", "cannot import name 'udtaf'"),
        ("g = udaf(lambda n: n, result_type=DataTypes.INT())", "f.g", "udaf takes an AggregateFunction"),
    ],
)
def test_what_is_no_function(host: Host, source: str, target: str, said: str) -> None:
    """Each mistake of a module is named."""
    with pytest.raises(ValueError, match=said):
        host.describe(modules("from pyflink.table.udf import udaf, ScalarFunction\n" + source), target)


def test_a_row_can_be_set(host: Host) -> None:
    """By place, by name and as an attribute, as accumulators are."""
    body = "row = Row(a=0, b=n)\nrow[0] = 5\nrow['b'] = n + 1\nrow.a += 1\nreturn row.a * 100 + row.b"
    source = "from pyflink.common import Row\n" + scalar(body)
    assert answered(host, source, [1, 2]) == ([602, 603], {})


def test_a_boolean_of_a_number(host: Host) -> None:
    """A byte is taken, as Flink does; on others its job fails."""
    values, failed = answered(host, scalar("return n", "BOOLEAN"), [0, 1, 255, -1, 256], result=Type("BOOLEAN"))
    assert values[:3] == [False, True, True]
    assert sorted(failed) == [3, 4]


def test_shapes_of_functions(host: Host) -> None:
    """A class with open and close, a generator, a lambda; texts as types; arguments counted."""
    source = (
        "class Scale(ScalarFunction):\n    def open(self, context):\n"
        "        self.factor = int(context.get_job_parameter('factor', '3'))\n"
        "    def eval(self, n, add=0): return n * self.factor + add\n"
        "    def is_deterministic(self): return False\n"
        "g = udf(Scale(), result_type='INT', input_types=[DataTypes.BIGINT()])\n"
        "rows = udtf(lambda n: range(n), result_types=['BIGINT'])\n"
        "pairs = udtf(lambda *n: [n], result_types='ROW<a BIGINT, b ARRAY<STRING>>')\n"
        "drawn = udf(lambda n: n, result_type='INT', deterministic=False)\n"
    )
    of = modules("from pyflink.table.udf import ScalarFunction\n" + source)
    found = host.describe(of, "f.g")
    assert (found["kind"], found["least"], found["most"], found["deterministic"]) == ("scalar", 1, 2, False)
    assert [one[1] for one in found["input"]] == ["BIGINT"]
    assert host.call(spec(of, result=Type("INT")), [(2,)]).values == [6]
    assert host.describe(of, "f.rows")["kind"] == "table"
    assert host.describe(of, "f.pairs")["most"] is None
    assert host.describe(of, "f.drawn")["deterministic"] is False
    rows = Spec(of.digest, "f.rows", "eval", (BIGINT,), (BIGINT,))
    assert host.call(rows, [(3,), (0,)]).values == [((0,), (1,), (2,)), ()]


def test_sets_of_modules_do_not_meet(host: Host) -> None:
    """Two modules of one name and other contents each have their own process; one that is no longer kept ends."""
    former, other = modules(scalar("return 1")), modules(scalar("return 2"))
    host.know((former, other))
    assert [host.call(spec(of), [(0,)]).values[0] for of in (former, other)] == [1, 2]
    (first, _) = host.pids()
    host.keep((other,))
    assert len(host.pids()) == 1
    until("the end of the first", lambda: not Path(f"/proc/{first}").exists())


# Waits for the bounds of CPU and of silence several times: they are its subject.
def test_harm_is_given_up_early(host: Host) -> None:
    """With the third row that does harm, whatever follows; by CPU, so nothing that a busy host changes."""
    for harm in ("while True: pass", "import time; time.sleep(60)", "sum(range(10 ** 12))", "import os; os._exit(1)"):
        of = modules(scalar(f"if n % 2:\n    {harm}\nreturn n"))
        host.know((of,))
        used = host.died
        with pytest.raises(Broken, match=r"f\.g: (took more than|the process did not survive)"):
            host.call(spec(of), [(n,) for n in range(1000)])
        assert host.died - used <= 4  # of 500 rows that do harm


def test_a_function_that_is_slow_on_every_row(host: Host) -> None:
    """No row takes too long by itself: all together do. One that is quick for long may be slow for a while."""
    of = modules(
        "import time\n" + scalar("until = time.process_time() + n\nwhile time.process_time() < until: pass\nreturn 1")
    )
    host.know((of,))
    double = spec(of, args=(Type("DOUBLE"),))
    assert not host.call(double, [(0.0,)] * 2000).failed
    assert not host.call(double, [(0.02,)] * 10).failed
    with pytest.raises(Broken, match=r"more than 1 ms of CPU a value, and 0.5 s beyond that"):
        host.call(double, [(0.02,)] * 1000)


def test_long_answers_come_in_parts(host: Host) -> None:
    """More than a frame holds is asked for again, not refused."""
    values, failed = answered(host, scalar("return 'x' * 200_000", "STRING"), list(range(200)), result=STRING)
    assert not failed
    assert {len(value) for value in values} == {200_000}
    assert host.died == 0


def test_modules_import_each_other(host: Host) -> None:
    of = modules("from helper import double\n" + scalar("return double(n)"), helper="def double(n): return 2 * n\n")
    host.know((of,))
    assert host.call(spec(of), [(4,)]).values == [8]
