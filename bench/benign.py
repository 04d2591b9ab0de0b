"""What ordinary machines log: templates of everyday lines, rendered once into a pool and reused with fresh numbers.

A **body** is a bytes template of one line. It holds exactly two ``%d`` slots, which the stream fills for every line
(first a process id 300..32767, then a number 1024..65535), and control bytes where the stream's time goes:

    \\x00  RFC 3164 stamp      \\x01  web log stamp      \\x02  ISO 8601 with ms and Z      \\x03  Unix seconds

So a pool of a few thousand bodies gives millions of distinct lines at the price of one ``%`` each. Every name and
address is made up: clients are from 198.18.0.0/15 (RFC 2544) and 10.0.0.0/8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

RFC3164, CLF, ISO, EPOCH = "\x00", "\x01", "\x02", "\x03"

WEB_HOSTS = ("web1", "web2", "web3")
HOSTS = (*WEB_HOSTS, "db1", "mail1", "gw-vienna", "ns1", "build2", "scada-gw", "edge-17")
USERS = ("anna", "bela", "carol", "deploy", "eva", "felix", "gerda", "backup", "ansible", "ops")
SERVICES = (
    "nginx.service", "postgresql.service", "apt-daily.service", "logrotate.service", "redis-server.service",
    "fstrim.service", "man-db.service", "chrony.service", "telemetry-relay.service", "session-cleanup.timer",
)  # fmt: skip
JOBS = (
    "/usr/lib/sysstat/sa1 1 1",
    "test -x /usr/sbin/anacron || run-parts /etc/cron.hourly",
    "/opt/backup/bin/nightly --quiet --target /srv/backup",
    "/usr/local/bin/rotate-reports >/dev/null",
    "php /srv/shop/cron.php",
)
COMMANDS = (
    "/usr/bin/apt-get update", "/usr/bin/systemctl restart nginx", "/usr/bin/systemctl status postgresql",
    "/usr/bin/journalctl -u nginx -n 200", "/usr/bin/tail -n 100 /var/log/syslog", "/usr/sbin/nginx -t",
    "/usr/bin/docker ps --all", "/usr/bin/ls -la /srv/shop/releases", "/usr/bin/rsync -a /srv/shop/ /srv/backup/shop/",
)  # fmt: skip
PATHS = (
    "/", "/index.html", "/assets/app.css", "/assets/app.js", "/assets/logo.svg", "/favicon.ico", "/robots.txt",
    "/shop/list", "/shop/item", "/shop/cart", "/shop/checkout", "/blog/2026/autumn-sale", "/blog/feed.xml",
    "/api/v1/orders", "/api/v1/stock", "/api/v1/session", "/login", "/logout", "/account/profile", "/health",
)  # fmt: skip
QUERIES = (
    "",
    "",
    "",
    "?page=2",
    "?q=red+shoes",
    "?q=winter%%20coat",
    "?id=1207",
    "?lang=de&currency=EUR",
    "?utm_source=mail",
)
AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:131.0) Gecko/20100101 Firefox/131.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148",
    "kube-probe/1.31", "Prometheus/2.54.1", "curl/8.5.0", "feedfetcher/2.1",
)  # fmt: skip
DOMAINS = (
    "shop.example",
    "mail.example.net",
    "updates.example.org",
    "cdn.example.com",
    "ntp.example.org",
    "api.example.net",
)
DEVICES = (("press", 24), ("pump", 16), ("oven", 6), ("conveyor", 12), ("meter", 40))

Body = Callable[[Random], str]


def _client(rng: Random) -> str:
    return f"198.{rng.choice((18, 19))}.{rng.randrange(256)}.{rng.randrange(1, 255)}"


def _inner(rng: Random) -> str:
    return f"10.{rng.randrange(4)}.{rng.randrange(32)}.{rng.randrange(1, 255)}"


def _hex(rng: Random, digits: int) -> str:
    return f"{rng.getrandbits(4 * digits):0{digits}x}"


def syslog(priority: int, host: str, tag: str, message: str) -> str:
    """A line of RFC 3164 whose stamp is still open."""
    return f"<{priority}>{RFC3164} {host} {tag}: {message}"


def access(client: str, user: str, request: str, status: int, size: str, referer: str, agent: str) -> str:
    """A line of the combined web log format whose stamp is still open."""
    return f'{client} - {user} [{CLF}] "{request}" {status} {size} "{referer}" "{agent}"'


def _sshd(rng: Random) -> str:
    host, user, ip = rng.choice(HOSTS), rng.choice(USERS), _inner(rng)
    message = rng.choices(
        (
            f"Accepted publickey for {user} from {ip} port %d ssh2: ED25519 SHA256:{_hex(rng, 16)}",
            f"Connection closed by authenticating user {user} {ip} port %d [preauth]",
            f"Disconnected from user {user} {ip} port %d",
            f"Received disconnect from {ip} port %d:11: disconnected by user",
            f"Failed password for {user} from {ip} port %d ssh2",
        ),
        (8, 1, 6, 6, 1),
    )[0]
    return syslog(38, host, "sshd[%d]", message)


def _session(rng: Random) -> str:
    user, program = rng.choice(USERS), rng.choice(("sshd", "cron", "su"))
    what = rng.choice(
        (f"session opened for user {user}(uid=%d) by (uid=0)", f"session closed for user {user} after %d s")
    )
    return syslog(86, rng.choice(HOSTS), f"{program}[%d]", f"pam_unix({program}:session): {what}")


def _sudo(rng: Random) -> str:
    user, command = rng.choice(USERS), rng.choice(COMMANDS)
    message = f"{user:>8} : TTY=pts/{rng.randrange(6)} ; PWD=/home/{user} ; USER=root ; COMMAND={command} ; TSID=%d"
    return syslog(85, rng.choice(HOSTS), "sudo[%d]", message)


def _cron(rng: Random) -> str:
    return syslog(
        78,
        rng.choice(HOSTS),
        "CRON[%d]",
        f"({rng.choice(('root', 'backup', 'www-data'))}) CMD ({rng.choice(JOBS)} #%d)",
    )


def _account(rng: Random) -> str:
    user = f"tmp{rng.randrange(100)}"
    message = rng.choice(
        (
            f"new user: name={user}, UID=%d, GID=1500, home=/home/{user}, shell=/usr/sbin/nologin, from=none",
            f"new group: name={user}, GID=%d",
        )
    )
    return syslog(86, rng.choice(HOSTS), "useradd[%d]", message)


def _systemd(rng: Random) -> str:
    unit = rng.choice(SERVICES)
    message = rng.choice(
        (
            f"Started {unit} (invocation %d).",
            f"{unit}: Deactivated successfully after %d ms.",
            f"Finished {unit} (invocation %d).",
            f"{unit}: Consumed %d ms CPU time.",
        )
    )
    return syslog(30, rng.choice(HOSTS), "systemd[%d]", message)


def _kernel(rng: Random) -> str:
    message = rng.choice(
        (
            f"IN=eth0 OUT= SRC={_client(rng)} DST={_inner(rng)} LEN=60 TTL=52 ID=%d PROTO=TCP SPT=%d DPT=443 SYN",
            "eth0: renamed from veth%d, index %d",
            "EXT4-fs (sda1): re-mounted %d, quota mode: none, inode %d",
            "perf: interrupt took too long (%d > 2500), lowering sample rate to %d",
        )
    )
    return syslog(4, rng.choice(HOSTS), "kernel", f"[{rng.randrange(10**6)}.{rng.randrange(10**6):06}] {message}")


def _request(rng: Random) -> str:
    method = rng.choices(("GET", "POST", "HEAD"), (14, 3, 1))[0]
    request = f"{method} {rng.choice(PATHS)}{rng.choice(QUERIES)} HTTP/1.1"
    status = rng.choices((200, 304, 302, 404, 401, 500), (80, 8, 5, 5, 1, 1))[0]
    referer = rng.choice(("-", "-", "https://shop.example/shop/list?from=%d"))
    if "%d" not in referer:
        referer = "https://shop.example/?visit=%d"
    return access(_client(rng), rng.choice(("-",) * 9 + USERS[:1]), request, status, "%d", referer, rng.choice(AGENTS))


def _nginx(rng: Random) -> str:
    return syslog(190, rng.choice(WEB_HOSTS), "nginx", _request(rng))


def _dhclient(rng: Random) -> str:
    message = rng.choice(("DHCPREQUEST for {0} on eth0 to {1} port 67 xid=%d", "DHCPACK of {0} from {1} (xid=%d)"))
    return syslog(30, rng.choice(HOSTS), "dhclient[%d]", message.format(_inner(rng), _inner(rng)))


def _postfix(rng: Random) -> str:
    queue = _hex(rng, 10).upper()
    to = f"{rng.choice(USERS)}@{rng.choice(DOMAINS)}"
    program, message = rng.choice(
        (
            ("smtpd", f"connect from {rng.choice(DOMAINS)}[{_client(rng)}]:%d"),
            ("qmgr", f"{queue}: from=<{to}>, size=%d, nrcpt=1 (queue active)"),
            ("smtp", f"{queue}: to=<{to}>, relay={rng.choice(DOMAINS)}:25, delay=%d, dsn=2.0.0, status=sent"),
        )
    )
    return syslog(22, "mail1", f"postfix/{program}[%d]", message)


def _named(rng: Random) -> str:
    domain = rng.choice(DOMAINS)
    return syslog(
        30,
        "ns1",
        "named[%d]",
        f"client @0x{_hex(rng, 12)} {_inner(rng)}#%d ({domain}): query: {domain} IN A + (10.0.0.53)",
    )


def _order(rng: Random) -> str:
    level, text = rng.choice(
        (("info", "order placed"), ("info", "payment settled"), ("warn", "slow query"), ("info", "cart updated"))
    )
    body = (
        f'{{"timestamp":"{ISO}","level":"{level}","msg":"{text}","user":"{rng.choice(USERS)}","src_ip":"{_client(rng)}",'
        f'"order":{{"id":%d,"items":{rng.randrange(1, 9)}}},"trace":"{_hex(rng, 16)}"}}'
    )
    return syslog(134, rng.choice(WEB_HOSTS), "shop[%d]", body)


def _modern(rng: Random) -> str:
    unit = rng.choice(SERVICES)
    return (
        f"<165>1 {ISO} {rng.choice(HOSTS)}.plant.example agentd %d ID{rng.randrange(40, 60)} "
        f'[meta sequenceId="%d" unit="{unit}"] health check of {unit} passed in {rng.randrange(2, 90)} ms'
    )


def _device(rng: Random) -> tuple[str, str]:
    kind, many = rng.choices(DEVICES, [many for _, many in DEVICES])[0]
    return kind, f"plant/hall{rng.randrange(1, 4)}/{kind}/{kind}-{rng.randrange(many):02}"


def _telemetry(rng: Random) -> str:
    kind, topic = _device(rng)
    temperature = {"oven": 85.0, "press": 55.0}.get(kind, 31.0) + rng.gauss(0, 2)
    return (
        f'{topic}/telemetry {{"ts":{EPOCH},"seq":%d,"device_id":"{topic.rpartition("/")[2]}",'
        f'"temperature":{temperature:.1f},"vibration":{abs(rng.gauss(1.2, 0.3)):.2f},'
        f'"rpm":{rng.randrange(900, 1500)},"uptime":%d,"state":"run"}}'
    )


def _reading(rng: Random) -> str:
    _, topic = _device(rng)
    return f"{topic}/raw " + rng.choice(("t=%d;u=%d", "OK %d %d", "%d,%d,23.5"))


SYSLOG: Sequence[tuple[int, Body]] = (
    (7, _nginx),
    (20, _sshd),
    (20, _session),
    (4, _sudo),
    (8, _cron),
    (1, _account),
    (14, _systemd),
    (6, _kernel),
    (3, _dhclient),
    (6, _postfix),
    (5, _named),
    (2, _order),
    (2, _modern),
)
ACCESS: Sequence[tuple[int, Body]] = ((1, _request),)
MQTT: Sequence[tuple[int, Body]] = ((9, _telemetry), (1, _reading))


def pool(table: Sequence[tuple[int, Body]], rng: Random, size: int) -> list[bytes]:
    """``size`` bodies in the shares that ``table`` gives as (weight, body)."""
    makers = rng.choices([maker for _, maker in table], [weight for weight, _ in table], k=size)
    return [maker(rng).encode() for maker in makers]
