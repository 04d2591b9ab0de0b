"""What ordinary functions need is there, and one that its process does not survive costs its row alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.udf.test_host import answered, isolation, modules, scalar, spec
from vedette.stream.userfunctions import Broken
from vedette.udf.host import Host, Limits

ROOT = Path(__file__).parents[2]

ORDINARY = {
    "json": "json.dumps(json.loads('{\"a\": [1, 2.5, null]}'))",
    "re": "re.sub(r'(\\d+)', lambda m: m[1] * 2, 'a1b22')",
    "math": "math.sqrt(2) + math.factorial(20)",
    "datetime": "datetime.datetime.now(datetime.timezone.utc).isoformat()",
    "decimal": "decimal.Decimal('1.1') / 3",
    "ipaddress": "ipaddress.ip_address('10.0.0.1') in ipaddress.ip_network('10.0.0.0/8')",
    "hashlib": "hashlib.sha256(b'x').hexdigest() + hashlib.blake2b(b'x').hexdigest() + hashlib.md5(b'x').hexdigest()",
    "hmac": "hmac.new(b'k', b'm', 'sha256').hexdigest()",
    "random": "random.random()",
    "secrets": "secrets.token_hex()",
    "uuid": "uuid.uuid4()",
    "statistics": "statistics.stdev([1, 2, 4])",
    "csv": "next(csv.reader(['a,b']))",
    "urllib.parse": "urllib.parse.urlsplit('https://a/b?c=d')",
    "base64": "base64.b64decode('eA==')",
    "zlib": "zlib.decompress(zlib.compress(b'x' * 1000))",
    "struct": "struct.unpack('<I', b'1234')",
    "textwrap": "textwrap.shorten('a b c d', 5)",
    "unicodedata": "unicodedata.normalize('NFC', 'é')",
    "fractions": "fractions.Fraction(1, 3)",
    "collections": "collections.Counter('abca')",
    "functools": "functools.reduce(max, [1, 3, 2])",
    "itertools": "list(itertools.pairwise([1, 2, 3]))",
    "time": "time.strftime('%Y', time.gmtime()) + str(time.time_ns())",
    "html": "html.unescape('&amp;')",
    "difflib": "difflib.SequenceMatcher(None, 'ab', 'ac').ratio()",
    "os": "os.cpu_count(), os.getpid(), os.path.basename('/a/b'), os.uname()",
    "zoneinfo": "zoneinfo.ZoneInfo('UTC')",
    "logging": "logging.getLogger('x').debug('y')",
    "dataclasses": "dataclasses.make_dataclass('D', ['a'])(1)",
    "xml.etree.ElementTree": "xml.etree.ElementTree.fromstring('<a b=\"1\"/>').get('b')",
    "sqlite3": "sqlite3.connect(':memory:').execute('SELECT 1').fetchall()",
    "ctypes": "ctypes.CDLL(None).abs(-1)",
    "tempfile": "tempfile.SpooledTemporaryFile().write(b'x')",
    "linecache": "linecache.getline(linecache.__file__, 1)",
}
"""Modules of Python's, each with a line that works."""


@pytest.fixture
def host() -> Iterator[Host]:
    made = Host(Limits(seconds=0.5))
    yield made
    made.close()


def ordinary() -> str:
    lines = "".join(
        f"    if n == {at}:\n        import {name}\n        {line}\n"
        for at, (name, line) in enumerate(ORDINARY.items())
    )
    return f"@udf(result_type='BIGINT')\ndef g(n):\n{lines}    return n\n"


def test_ordinary_functions_work(host: Host) -> None:
    """Each of these modules can be imported at a row, and does what it is for; where the kernel has no Landlock no time
    zone can be opened."""
    without = set() if "landlock" in isolation(host) else {"zoneinfo"}
    values, failed = answered(host, ordinary(), [*range(len(ORDINARY))])
    assert {[*ORDINARY][at]: why for at, why in failed.items() if [*ORDINARY][at] not in without} == {}
    assert values == [None if name in without else at for at, name in enumerate(ORDINARY)]
    assert host.died == 0


OWN = scalar("import calendar, statistics\nreturn calendar.own + statistics.own + n")

_SCRIPT = """
import sys
sys.path[:0] = [{root!r}, {agent!r}]
from tests.udf.deeds import forbid
forbid({lacking!r})
from tests.udf.test_contained import ORDINARY, OWN, ordinary
from tests.udf.test_host import modules, spec
from vedette.udf.host import Host, Limits
host, of = Host(Limits(seconds=0.5)), modules(ordinary())
host.know((of,))
failed = host.call(spec(of), [(n,) for n in range(len(ORDINARY))]).failed
print(host.isolation, {{[*ORDINARY][at]: why for at, why in failed.items()}})
own = modules(OWN, calendar="own = 1", statistics="own = 2")
host.know((own,))
print(host.call(spec(own), [(4,)]))
host.close()
"""


def test_ordinary_functions_work_where_files_are_closed() -> None:
    """Without Landlock no file is opened: what modules name in their imports is loaded before. A zone's file is not."""
    script = _SCRIPT.format(root=str(ROOT), agent=str(ROOT / "agent"), lacking=("landlock", "namespaces", "priority"))
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    first, own = found.stdout.splitlines()
    measures, _, failed = first.partition(") ")
    assert "closed" in measures
    assert own == "Answers(values=[7], failed={}, harmful=[])"  # modules of the rules go before those of Python
    assert set(eval(failed)) <= {"zoneinfo", "linecache"}  # noqa: S307  # of a test's own


def test_a_row_at_which_the_filter_ends_the_process(host: Host) -> None:
    """It fails alone and counts as harm, all others have their values; where it comes again and again the function is
    given up, and another goes on."""
    if os.uname().machine != "x86_64":
        pytest.skip("the other calls are those of x86")
    calls = (  # exit(1) by the numbers of 32 bits, for which the filter has no row
        "import ctypes, mmap\n"
        "code = mmap.mmap(-1, 4096, prot=7)\n"
        "code.write(bytes.fromhex('b801000000bb01000000cd80c3'))\n"
        "ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()\n"
    )
    body = "if n % 5 == 3:\n" + "".join(f"    {line}\n" for line in calls.splitlines()) + "return n"
    values, failed = answered(host, scalar(body), [*range(10)])
    assert values == [0, 1, 2, None, 4, 5, 6, 7, None, 9]
    assert failed[3].endswith("the process did not survive it: it was killed by signal 31")
    again = modules(scalar(body))
    with pytest.raises(Broken, match="killed by signal 31"):
        host.call(spec(again), [(n,) for n in range(30)])
    assert answered(host, scalar("return n + 1"), [1]) == ([2], {})


_NAMED = """
import sys
sys.path[:0] = [{root!r}, {agent!r}]
from tests.udf.deeds import forbid
forbid({lacking!r})
from tests.udf.test_host import modules, scalar, spec
from vedette.udf.host import Host
sys.path.append({folder!r})
host, of = Host(), modules("import installed\\n" + scalar("return n"))
host.know((of,))
host.call(spec(of), [(1,)])
host.close()
"""


def test_what_is_installed_is_imported_in_the_sandbox(host: Host, tmp_path: Path) -> None:
    """A function may name any installed module; what importing it does outside of itself is refused as of a function,
    also where modules are loaded before files are closed."""
    (tmp_path / "installed.py").write_text(f"open({str(tmp_path / 'written')!r}, 'w')\n")
    for lacking in ((), ("landlock",)) if "landlock" in isolation(host) else (("landlock",),):
        script = _NAMED.format(root=str(ROOT), agent=str(ROOT / "agent"), lacking=lacking, folder=str(tmp_path))
        found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert "No module named 'installed'" in found.stderr if lacking else "PermissionError" in found.stderr
        assert not (tmp_path / "written").exists()
