"""Who and from where, in what daemons say: made-up lines in each one's layout, and lines that say neither."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.differences import walk
from vedette.decode import fields, peers
from vedette.decode.decoder import ABSENT, record
from vedette.decode.formats.base import Provenance

NOW = 1_795_600_000_000_000
IP, V6, OURS = "203.0.113.9", "2001:db8::9", "198.51.100.1"
HEAD = "Nov 20 10:00:00 web1 "
AGENT = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36"
)
ISO = "2026-11-20 10:00:00"


def read(line: str) -> tuple[Any, Any]:
    r = record(line.encode(), "auto", received_at=NOW)
    return r.get("src_ip"), r.get("user")


LINES = [
    # mail
    (HEAD + f"dovecot: auth-worker(7): sql(eve,{IP},<aB+/c>): unknown user", IP, "eve"),
    (HEAD + f"dovecot: auth: pam(eve,::ffff:{IP}): pam_authenticate() failed: Authentication failure", IP, "eve"),
    (HEAD + f"dovecot: auth: Info: passwd-file(eve@example.org,{V6},<s>): Password mismatch", V6, "eve@example.org"),
    (HEAD + f"dovecot: imap-login: Disconnected (auth failed, 1 attempts in 2 secs): user=<eve>, method=PLAIN, "
     f"rip={IP}, lip={OURS}, TLS, session=<x>", IP, "eve"),
    (HEAD + f"dovecot: pop3-login: Login: user=<bob>, method=PLAIN, rip={V6}, lip={OURS}, mpid=7", V6, "bob"),
    (HEAD + f"postfix/smtpd[7]: warning: unknown[{IP}]: SASL LOGIN authentication failed: UGFzc3dvcmQ6", IP, ABSENT),
    (HEAD + f"postfix/submission/smtpd[7]: lost connection after AUTH from h.example[{IP}]", IP, ABSENT),
    (HEAD + f"postfix/smtpd[7]: too many errors after AUTH from unknown[{V6}]", V6, ABSENT),
    (HEAD + f"postfix/smtpd[7]: improper command pipelining after EHLO from unknown[{IP}]: QUIT", IP, ABSENT),
    (HEAD + f"postfix/postscreen[7]: PREGREET 11 after 0.1 from [{IP}]:5566: EHLO x", IP, ABSENT),
    (HEAD + f"postfix/smtps/smtpd[7]: NOQUEUE: reject: RCPT from unknown[{IP}]: 554 5.7.1 <x@[{OURS}]>: denied", IP,
     ABSENT),
    (f"{ISO} dovecot_login authenticator failed for (User) [{IP}]:53215 I=[{OURS}]:25: 535 Incorrect authentication "
     "data (set_id=eve)", IP, "eve"),
    (f"{ISO} login authenticator failed for h.example ([{OURS}]) [{IP}]: 535 Incorrect data", IP, ABSENT),
    (f"{ISO} H=h.example (x) [{IP}]:555 I=[{OURS}]:25 F=<a@b.example> rejected RCPT <c@d.example>: relay not permitted",
     IP, ABSENT),
    (f"{ISO} SMTP call from h.example [{IP}] dropped: too many nonmail commands", IP, ABSENT),
    (HEAD + f"sm-mta[7]: uAK9: AUTH failure (LOGIN): user not found (-20) SASL(-13): x, user=eve, relay=[{IP}]", IP,
     "eve"),
    (HEAD + f"sm-mta[7]: uAK9: possible SMTP attack: command=AUTH, count=5, relay=h.example [IPv6:{V6}]", V6, ABSENT),
    (HEAD + f"cyrus/imap[7]: badlogin: h.example [{IP}] plaintext eve SASL(-13): authentication failure", IP, ABSENT),
    (HEAD + f"imapd-ssl: LOGIN FAILED, method=PLAIN, ip=[::ffff:{IP}]", IP, ABSENT),
    (HEAD + f"imapd[7]: Login failed user=eve auth=eve host=h.example [{IP}]", IP, "eve"),
    (HEAD + f"solid-pop3d[7]: authentication failed: no such user: eve - {IP}", IP, "eve"),
    (f"[20/Nov/2026 10:00:00] IMAP: Invalid password for user eve. Attempt from IP address {IP}.", IP, ABSENT),
    (f"[20/Nov/2026 10:00:00] Failed SMTP login from {IP} with SASL method LOGIN.", IP, ABSENT),
    (f'<co ts="2026-11-20T10:00:00.1" sc="tcp_submit" tr="TCP|{OURS}|465|{IP}|60766" mi="Bad password" us="eve"/>', IP,
     ABSENT),
    (HEAD + f"horde[7]: [imp] FAILED LOGIN for eve [{IP}] to {{mail.example:143}}", IP, ABSENT),
    (f"11/20/2026 10:00:00 [LOGIN_ERROR] eve (example.org) from {IP}: Unknown user or password incorrect.", IP, ABSENT),
    (f"Fri Nov 20 10:00:00 2026 - [{IP}] (eve) login error - no such user - loginname=eve", IP, ABSENT),
    (f"03-07-2026 10:00:00   SMTP Server: Authentication failed for user eve ; connecting host {IP}", IP, ABSENT),
    (f"Nov-20-26 10:00:00 Blocking {IP} - too much AUTH errors (8);", IP, ABSENT),
    (f"{ISO},100 WARN [ImapServer-7] [ip={OURS};oip={IP};] security - cmd=Auth; account=eve; error=authentication "
     "failed for [eve];", IP, "eve"),
    # file transfer, shells, remote desktops
    (HEAD + f"pure-ftpd: (?@{IP}) [WARNING] Authentication failed for user [eve]", IP, ABSENT),
    (HEAD + f"pure-ftpd: (eve@{V6}) [INFO] eve is now logged in", V6, "eve"),
    (HEAD + f"vsftpd[7]: [eve] FAIL LOGIN: Client \"::ffff:{IP}\"", IP, "eve"),
    (HEAD + f"ftpd[7]: FTP LOGIN FAILED FROM h.example [{IP}], eve", IP, ABSENT),
    (HEAD + f"wu-ftpd[7]: failed login from h.example [{IP}]", IP, ABSENT),
    (HEAD + f"gssftpd[7]: repeated login failures from {IP} (h.example)", IP, ABSENT),
    (HEAD + f"proftpd[7]: web1 (h.example[{IP}]) - USER eve: no such user found from {IP} to {OURS}:21", IP, "eve"),
    (HEAD + f"xrdp-sesman[7]: [INFO ] AUTHFAIL: user=eve ip=::ffff:{IP} time=1795168800", IP, "eve"),
    (HEAD + f"screensharingd[7]: Authentication: FAILED :: User Name: eve :: Viewer Address: {IP} :: Type: DH", IP,
     "eve"),
    (HEAD + f"Xvnc[7]: Connections: blacklisted: {IP}::5900", IP, ABSENT),
    (HEAD + f"in.telnetd[7]: refused connect from {IP}", IP, ABSENT),
    (HEAD + f"xinetd[7]: FAIL: telnet address from={IP}", IP, ABSENT),
    (HEAD + f"sshd-session[7]: Failed password for invalid user eve from {V6} port 5 ssh2", V6, "eve"),
    # web and applications
    (f"[Fri Nov 20 10:00:00 2026] [error] [client {IP}] user eve not found: /x", IP, "eve"),
    (f"[{ISO}] [error] [client {IP}:555] script '/x.php' not found: access denied", IP, ABSENT),
    (f"{ISO}: (mod_auth.c.855) password doesn't match for /x username: eve IP: {IP}", IP, "eve"),
    (f"{ISO}: (http_auth.c.875) digest: auth failed for eve : wrong password, IP: {IP}", IP, ABSENT),
    (f't=2026-11-20T10:00:00+0100 lvl=eror msg="Invalid username or password" logger=context uname= remote_addr={IP}',
     IP, ABSENT),
    (f"2026/11/20 10:00:00 [W] Failed authentication attempt for eve from {IP}:4000", IP, "eve"),
    (f"[2026-11-20][vaultwarden::api::identity][ERROR] Username or password is incorrect. Try again. IP: {IP}. "
     "Username: eve@example.org.", IP, "eve@example.org"),
    (f"{ISO}.048 +08:00 [WRN] Failed login attempt, 2FA invalid. {IP}", IP, ABSENT),
    (f"{ISO} WARNING (MainThread) [homeassistant.components.http.ban] Login attempt or request with invalid "
     f"authentication from h.example ({IP}). Requested URL: '/auth'", IP, ABSENT),
    (f"10:00:00.123 [http-8080-7] WARN  o.a.g.r.auth.AuthenticationService - Authentication attempt from {IP} for "
     'user "eve" failed.', IP, "eve"),
    (f"[{ISO}]LOGIN FAILED for user: \"eve\" from IP: {IP}", IP, "eve"),
    (HEAD + f"phpMyAdmin[7]: user denied: eve (mysql-denied) from {IP}", IP, ABSENT),
    (HEAD + f"drupal: https://s.example|1795168800|user|{IP}|https://s.example/u|https://s.example/||0||Login attempt "
     "failed for eve.", IP, ABSENT),
    (HEAD + f"wordpress(s.example)[7]: Authentication failure for eve from {IP}", IP, "eve"),
    (HEAD + f"Froxlor: [Login Action {IP}] Unknown user 'eve' tried to login.", IP, "eve"),
    (f"'{IP}' 2 failed login attempts. Account 'eve'", IP, "eve"),
    (f"{ISO}|-1|0|0|[WEB] [{IP}] [eve] Authentication failed for 'eve' : password mismatch", IP, "eve"),
    (f"78017 00cff -- none -- - 2026-11-20T10:00:00+00:00 WARN (4): Tinebase::login::1 Login with username eve "
     f"from {IP} failed (-1)!", IP, "eve"),
    (HEAD + f"pvedaemon[7]: authentication failure; rhost=::ffff:{IP} user=eve@pve msg=no such user", IP, "eve@pve"),
    (HEAD + f"webmin[7]: Non-existent login as eve from {IP}", IP, "eve"),
    (HEAD + f"luci: failed login on /admin for eve from {IP}", IP, "eve"),
    (f"{ISO} [{IP}] error: HttpRequest: access denied -- client [{IP}]: wrong password for user 'eve'", IP, "eve"),
    (HEAD + f"monit[7]: Warning: Client '{IP}' supplied unknown user 'eve' accessing monit httpd", IP, "eve"),
    # databases, directories
    (f"{ISO} 7 [Note] Access denied for user 'eve'@'{IP}' (using password: YES)", IP, "eve"),
    (HEAD + f"mysqld[7]: 2026-11-20T10:00:00.1Z 7 [Note] [MY-010926] [Server] Access denied for user 'eve'@'{IP}' (x)",
     IP, "eve"),
    (HEAD + f'postgres[7]: [1-1] FATAL:  no pg_hba.conf entry for host "{IP}", user "eve", database "d", no encryption',
     IP, "eve"),
    (HEAD + 'postgres[7]: [1-1] FATAL:  password authentication failed for user "eve"', ABSENT, "eve"),
    (f"2026-11-20T10:00:00.1+0000 I ACCESS [conn7] SCRAM-SHA-1 authentication failed for eve on admin from client "
     f"{IP}:45602 ; UserNotFound", IP, ABSENT),
    (f"{ISO}.00 Logon       Login failed for user 'eve'. Reason: no such login. [CLIENT: {IP}]", IP, "eve"),
    # telephony, games, chat
    (HEAD + f"asterisk[7]: NOTICE[8]: chan_sip.c:9 in x: Registration from '\"eve\" <sip:eve@{OURS}>' failed for "
     f"'{IP}:5060' - Wrong password", IP, ABSENT),
    (f'[{ISO}] SECURITY[7] res_security_log.c: SecurityEvent="InvalidPassword",Service="PJSIP",AccountID="eve",'
     f'LocalAddress="IPV4/UDP/{OURS}/5060",RemoteAddress="IPV4/UDP/{IP}/5061",Challenge="x"', IP, ABSENT),
    (f"{ISO}.1 [WARNING] sofia_reg.c:1 SIP auth failure (REGISTER) on sofia profile 'internal' for [eve@{OURS}] from "
     f"ip {IP}", IP, f"eve@{OURS}"),
    (f"L 11/20/2026 - 10:00:00: Bad Rcon: \"rcon 1 x\" from \"{IP}:57370\"", IP, ABSENT),
    (f"<W>{ISO}.1 1 => <7:eve(-1)> Rejected connection from {IP}:29530: Invalid server password", IP, ABSENT),
    (f"{ISO}.1 [info] <0.7.0> Failed c2s PLAIN authentication for eve@example.org from {IP}: Invalid username", IP,
     "eve@example.org"),
    (f"[{ISO}] [eve] failed to login from {IP}:65001", IP, ABSENT),
    # networks: proxies, VPN, guards, appliances
    (f"1795168800.123     4 {IP} TCP_DENIED/403 4099 GET http://{OURS}/x - HIER_NONE/- text/html", IP, ABSENT),
    (f"20-11-2026 10:00:00 SOCK5.1080 00004 eve {IP}:28783 {OURS}:443 0 0 0 CONNECT", IP, "eve"),
    (HEAD + f"nsd[7]: refused query from {IP}", IP, ABSENT),
    (HEAD + f"nsd[7]: axfr for example.org. from client {IP} refused, no acl matches", IP, ABSENT),
    (HEAD + f"nrpe[7]: Host {IP} is not allowed to talk to us!", IP, ABSENT),
    (HEAD + f"portsentry[7]: attackalert: Host: {IP}/{IP} is already blocked Ignoring", IP, ABSENT),
    (HEAD + f"scanlogd: {IP} to {OURS} ports 80, 81, 83, ..., fSrpauxy, TOS 00 @10:00:00", IP, ABSENT),
    (HEAD + f"scanlogd: {IP}:7 to {OURS} ports 1, 2, ..., fSrpauxy, TOS 00 @10:00:00", IP, ABSENT),
    (f"[1795168800] nsd[7]: info: ratelimit block example.org. type any target {IP}/24 query {IP} ANY", IP, ABSENT),
    (f"[20/Nov/2026 10:00:00] Client with IP address {IP} has no reverse DNS entry, connection rejected", IP, ABSENT),
    (f"[{ISO} +0100] [error] [client {IP}] File does not exist: /x.php", IP, ABSENT),
    (HEAD + f"postfix/postscreen[7]: DNSBL rank 4 for [{IP}]:5", IP, ABSENT),
    (HEAD + f"tinyproxy[7]: Unauthorized connection from \"{IP}\".", IP, ABSENT),
    (HEAD + f"snmpd[7]: Connection from UDP: [{IP}]:5->[{OURS}]:161 REFUSED", IP, ABSENT),
    (HEAD + f"rsyncd[7]: auth failed on module m from h.example ({IP}) for eve: unauthorized user", IP, ABSENT),
    (HEAD + f"httpd[7]: AUDIT - user eve - RAW: httpd(mod_auth_pam): user=eve(eve) tty=(unknown) host={IP} attempts=1",
     IP, "eve"),
    (HEAD + f"stunnel[7]: LOG3[8]: SSL_accept from {IP}:33454 : peer did not return a certificate", IP, ABSENT),
    (HEAD + f"ovpn-server[7]: TLS Error: cannot locate HMAC in incoming packet from [AF_INET]{IP}:55340", IP, ABSENT),
    (HEAD + f"perdition[7]: Auth: {IP}:2274->{OURS}:993 authentication_id=\"eve\" status=\"failed: x\"", IP, ABSENT),
    (HEAD + f"gw.local system,error,critical login failure for user eve from {IP} via ssh", IP, "eve"),
    (HEAD + f"sshd[7]: SSHD_LOGIN_FAILED: Login failed for user 'eve' from host '{IP}'", IP, "eve"),
    (HEAD + f"Connection: User [eve] from [{IP}] failed to log in via [DSM] due to authorization failure.", IP, "eve"),
    (HEAD + f"qlogd[7]: conn log: Users: eve, Source IP: {IP}, Computer name: x, Action: Login Fail", IP, ABSENT),
    (HEAD + f"smbd[7]: Auth: [SMB2,(null)] user [CORP]\\[eve] at [x] with [NTLMv2] status [NT_STATUS_WRONG_PASSWORD] "
     f"workstation [WS1] remote host [ipv4:{IP}:51234] local host [ipv4:{OURS}:445]", IP, "eve"),
    (HEAD + f"fail2ban.filter[7]: INFO [sshd] Found {IP} - {ISO}", IP, ABSENT),
    (HEAD + f"accesslogs: Info: 1795168800.123 331 {IP} TCP_DENIED/403 31 POST http://s.example/x eve DIRECT/s.example "
     "- \"Mozilla/5.0 (X11; U; Linux arm7tdmi; rv:1.8.1.11) Gecko/20071130 Minimo/0.025\"", IP, ABSENT),
    (HEAD + f'app[7]: {IP} login failed user eve "{AGENT}"', IP, ABSENT),
    (HEAD + f'app[7]: {IP} - bob [20/Nov/2026] access denied "{AGENT}"', IP, ABSENT),
    (f"2026-11-20T10:00:00+00:00 web1 froxlor[7]: froxlor.WARNING: Unknown user tried to login. "
     f'{{"source":"login","action":"50","user":"{IP}"}} []', IP, ABSENT),
    (HEAD + f"vsftpd[7]: pam_unix: authentication failure; logname= uid=0 tty=ftp ruser=eve rhost={IP}", IP, ABSENT),
    (HEAD + f"app[7]: login failed, user IP: {IP}", IP, ABSENT),
    (HEAD + f"app[7]: login failed user_ip={IP} nas_ip={OURS}", IP, ABSENT),
    (HEAD + f"app[7]: login failed for user eve ({IP})", IP, ABSENT),
    (HEAD + f"app[7]: User eve login failed: {IP}", IP, ABSENT),
    # neither: our own address, servers, versions, networks, names that a client chose
    (HEAD + f"sshd[7]: Server listening on {OURS} port 22.", ABSENT, ABSENT),
    (HEAD + f"app[7]: Connection to {OURS}:5432 failed: password authentication failed", ABSENT, ABSENT),
    (HEAD + f"app[7]: LDAP server {OURS} rejected the login", ABSENT, ABSENT),
    (HEAD + f"app[7]: could not connect to host {OURS}: access denied", ABSENT, ABSENT),
    (HEAD + f"postfix/smtp[7]: A1: host mx.example[{OURS}] said: 550 5.7.1 blocked: connection from [{IP}] denied",
     ABSENT, ABSENT),
    (HEAD + f"postfix/smtp[7]: connect to mx.example[{OURS}]:25: Connection refused", ABSENT, ABSENT),
    (HEAD + f"sm-mta[7]: uAK9abc01: to=<a@b.example>, mailer=esmtp, relay=mx.example. [{OURS}], stat=Sent", ABSENT,
     ABSENT),
    (HEAD + f"dhclient[7]: DHCPACK of {IP} from {OURS}", ABSENT, ABSENT),
    (HEAD + f"ntpd[7]: Listen normally on 3 eth0 {OURS}:123", ABSENT, ABSENT),
    (HEAD + "app[7]: login module version 10.2.3.4 failed to load", ABSENT, ABSENT),
    (HEAD + "app[7]: access denied for network 198.51.100.0/24", ABSENT, ABSENT),
    (HEAD + f"app[7]: failed to fetch http://{OURS}/login: access denied", ABSENT, ABSENT),
    (HEAD + f"app[7]: login failed for eve@{OURS}", ABSENT, ABSENT),
    (HEAD + f"app[7]: Failed login for x from {OURS} from {IP}", ABSENT, ABSENT),
    (HEAD + f"app[7]: Failed login for x from {OURS} from h.example.org", ABSENT, ABSENT),
    (HEAD + f"app[7]: login of client {OURS} denied for {IP}", ABSENT, ABSENT),
    (HEAD + f"app[7]: authentication of {IP} and {OURS} failed", ABSENT, ABSENT),
    (HEAD + "app[7]: login failed at 10:11:12, module Foo::Bar, mac 00:11:22:33:44:55", ABSENT, ABSENT),
    (HEAD + f"sudo:  bob : TTY=pts/0 ; PWD=/ ; USER=root ; COMMAND=/bin/echo login failed from {IP}", ABSENT, "bob"),
    (HEAD + f"CRON[7]: (root) CMD (echo login failed from {IP})", ABSENT, "root"),
    (HEAD + f"postfix/smtp[7]: warning: SASL authentication failure: mail.example[{OURS}]: 535 Incorrect data", ABSENT,
     ABSENT),
    (HEAD + f"sssd[7]: authentication with ipa01[{OURS}] failed for bob", ABSENT, ABSENT),
]  # fmt: skip


@walk(("line", "ip", "user"), LINES)
def test_lines(line: str, ip: str, user: Any) -> None:
    """The peer's address, or none; the user where the layout gives him."""
    found = read(line)
    assert found == (ip, user)


@walk(
    "what",
    [
        *(f'Login failed for user bob, user agent "{AGENT}"', f'login failed user=bob ua="{AGENT}"'),
        *(f"Failed login for bob ({AGENT})", "Invalid password for user bob [Mozilla/5.0 (X11; rv:1.8.1.11) x]"),
        *("login failed for bob (curl/7.88.1.2)", "login failed for bob, agent x rv:1.8.1.11"),
        *(f"login failed for user={OURS}", f"login failed user='{OURS}'", f'login failed for user "x from {OURS}"'),
        *(f'login failed for user name "{OURS}"', f"İ login failed for user 'x from {OURS}'"),
        *(
            f"login failed for bob, {key}={OURS}"
            for key in ("nas_ip", "device_ip", "mgmt_ip", "db_host", "NAS-IP-Address")
        ),
        *(f"login failed user=bob url={OURS}/login", f"Login attempt for user bob failed. Device IP: {OURS}"),
        *(f"user bob login failed; {of} {OURS}" for of in ("my address", "wan ip:", "vpn ip", "device:", "our ip")),
        *(f"RADIUS: bob rejected by nas01[{OURS}]", f"login failed for user bob, app/{OURS} is outdated"),
    ],
)
def test_no_peer(what: str) -> None:
    """Versions, names that a client logs in with, and whatever a word that is not known says are no peer."""
    assert read(f"{HEAD}app[7]: {what}")[0] is ABSENT


_NAMES = [
    *("test 127.0.0.1 port 12345", "x from 127.0.0.1 port 1 ssh2", "x from 127.0.0.1", "x rhost=127.0.0.1"),
    *("127.0.0.1", "x' from '127.0.0.1", "x [127.0.0.1]", "x client 127.0.0.1", "rhost=127.0.0.1 user=y"),
    *("x src_ip=127.0.0.1", "src_ip=127.0.0.1 x", "x,src_ip=127.0.0.1 src_port=1"),
    *("x source.ip=127.0.0.1", "source.ip=127.0.0.1 x"),
    *("x]@[127.0.0.1", "x, client: 127.0.0.1, server", "x ip=127.0.0.1", 'x" from 127.0.0.1', "x 127.0.0.1 port 1: y"),
]
_SSHD = [
    *(
        f"{what} user {{n}} {IP} port 5 [preauth]"
        for what in ("Connection closed by invalid", "Disconnected from invalid")
    ),
    *(f"Connection reset by authenticating user {{n}} {IP} port 5", f"Disconnected from user {{n}} {IP} port 5"),
    f"Disconnecting invalid user {{n}} {IP} port 5: Too many authentication failures [preauth]",
]


@walk("name", _NAMES)
def test_names_that_clients_choose(name: str) -> None:
    """A client's name is never its address: what contradicts it gives none, and sshd says it behind the name."""
    for layout in _SSHD:
        assert read(f"{HEAD}sshd[7]: {layout.format(n=name)}") == (IP, name)
    for layout in (
        "sshd[7]: Disconnecting invalid user a {r} port 5: Change of username or service not allowed: (a,s) -> ({n},s)",
        "sshd[7]: Disconnecting invalid user {n} {r} port 5: Change of username or service not allowed: (a,s) -> (b,s)",
        "vsftpd[7]: pam_unix(vsftpd:auth): authentication failure; logname= uid=0 tty=ftp ruser={n} rhost={r}",
        "xrdp-sesman[7]: [INFO ] AUTHFAIL: user={n} ip=::ffff:{r} time=1",
        "app[7]: login failed for user {n} from {r}",
        'app[7]: login failed for user "{n}" from {r}',
        "app[7]: {r}: login failed for user {n}",
        "app[7]: login failed ip={r} user={n}",
        "app[7]: login failed user={n} ip={r}",
        "app[7]: authentication failure; rhost={r} user={n}",
        "mysqld: 5 [Note] Access denied for user '{n}'@'{r}' (using password: YES)",
        "exim[7]: dovecot_login authenticator failed for ({n}) [{r}]:5000: 535 Incorrect data (set_id={n})",
        "exim[7]: dovecot_login authenticator failed for (x) [{r}]:5000: 535 Incorrect data (set_id=a) [{n}])",
        "su[7]: FAILED SU (to {n}) bob on pts/1",
        "courier: LOGIN FAILED, user={n}, ip=[::ffff:{r}]",
        "pure-ftpd: (?@{r}) [WARNING] Authentication failed for user [{n}]",
        "app[7]: login failed src_ip={r} user={n}",
        "app[7]: user={n} src_ip={r} result=failed",
        "app[7]: user={n} rip={r} result=failed",
    ):
        found = read(HEAD + layout.format(n=name, r=IP))[0]
        assert found in (ABSENT, IP), layout


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        (f"app[7]: user=bob src_ip={IP} result=failed", {"src_ip": IP, "result": "failed"}),  # pairs from the start
        (f"app[7]: denied: src_ip={IP} dst_ip={OURS}", {"src_ip": IP, "dst_ip": OURS}),
        (f"app[7]: flow src_ip={IP} bytes=5", {"src_ip": IP, "bytes": "5"}),
        (f"app[7]: login failed for user 'x client_ip={IP} a=b' c=d", {"client_ip": ABSENT, "a": ABSENT, "c": "d"}),
        (f"sshd[7]: Invalid user x rhost={IP} a=b from {OURS} port 5", {"rhost": ABSENT, "a": ABSENT, "src_ip": OURS}),
        (f"su[7]: FAILED SU (to root) bob src_ip={IP} on pts/1", {"src_ip": ABSENT}),
        (f"app[7]: src_ip={IP} src_ip={OURS}", {"src_ip": ABSENT}),
    ],
)
def test_pairs_in_names(message: str, fields: dict[str, Any]) -> None:
    """``key=value`` in what a client chose is no field, and ``src_ip=`` amid words counts as any peer does."""
    event = record((HEAD + message).encode(), "auto")
    assert {name: event.get(name) for name in fields} == fields


_REAL, _NONE = {"src_ip": "1.2.3.4"}, {"src_ip": ABSENT}
_CERT = "ssh2: RSA-CERT SHA256:a ID"
_PAM = "vsftpd: pam_unix(vsftpd:auth): authentication failure; logname= uid=0 euid=0 tty=ftp"
FORGED = [
    ("sshd: Failed password for invalid user root from 6.6.6.6 port 1 ssh1: ruser x from 1.2.3.4 port 5 ssh2", _NONE),
    ("sshd: Failed password for a from 1.2.3.4 port 5 ssh1: ruser x from 6.6.6.6", _REAL),
    ("sshd: Failed password for a from 6.6.6.6 ssh1: Mozilla/ from 1.2.3.4 port 5 ssh2", _NONE),
    (f"sshd: Failed password for a from 6.6.6.6 port 1 {_CERT} x from 1.2.3.4 port 5 ssh2", _NONE),
    (f"sshd: Failed publickey for a from 1.2.3.4 port 5 {_CERT} x from 6.6.6.6 port 1 (serial 0) CA RSA x", _NONE),
    (f"sshd: Accepted publickey for a from 1.2.3.4 port 5 {_CERT} x from 6.6.6.6 (serial 0) CA RSA x",
     {**_REAL, "user": "a", "key_type": "RSA-CERT", "key_fingerprint": "SHA256:a"}),
    ("sshd: Timeout, client not responding from user a from 6.6.6.6 port 1 to 1.2.3.4 port 5", _NONE),
    (f"{_PAM} ruser= rhost=6.6.6.6 rhost=1.2.3.4", _NONE),
    (f"{_PAM} ruser= rhost=6.6.6.6  user=b rhost=1.2.3.4", _NONE),
    (f"{_PAM} ruser= rhost=1.2.3.4  user=b", {**_REAL, "user": "b"}),
    ("mosquitto[7]: 1796000000: Client x [6.6.6.6:1] disconnected, y [1.2.3.4:5] disconnected.", _NONE),
    ("mosquitto[7]: Client x [6.6.6.6:1] [1.2.3.4:5] disconnected.", {**_REAL, "client_id": "x [6.6.6.6:1]"}),
    ("mosquitto[7]: Denied PUBLISH from x (d0, q0, r0, m0, 'a', (d0, q0, r0, m0, 'b', ... (1 bytes))",
     {"topic": ABSENT, "action": "PUBLISH"}),
    ("sm-mta[7]: abcdefg: ruleset=check_rcpt, arg1=<a relay=x [6.6.6.6]>, relay=h [1.2.3.4], reject=550 no", _NONE),
    ("sm-mta[7]: abcdefg: ruleset=check_rcpt, arg1=<from [6.6.6.6] relay=>, relay=h [1.2.3.4], reject=550 no", _NONE),
    ("sm-mta[7]: abcdefg: to=<a relay=x [6.6.6.6]>, relay=h [1.2.3.4], stat=Sent", {**_NONE, "dst_ip": ABSENT}),
    ("sm-mta[7]: abcdefg: <x@[6.6.6.6]>... User unknown", _NONE),
    ("dovecot: auth: pam(a,6.6.6.6): from 6.6.6.6 to,1.2.3.4,<x>): pam_authenticate() failed", _NONE),
    ("roundcube: Login failed for x from 6.6.6.6. A from 1.2.3.4. AUTHENTICATE PLAIN: failed", _NONE),
    ("roundcube: Failed login for x from 6.6.6.6 in session a from 1.2.3.4 in session b (error: 1)", _NONE),
    ("asterisk: NOTICE[1]: Registration from '\"x' failed for '6.6.6.6:1' - \"' failed for '1.2.3.4:5' - No", _NONE),
    ("asterisk: NOTICE[1]: Registration from '\"x failed for 'a' from 6.6.6.6\"' failed for '1.2.3.4:5' - No", _NONE),
    ("asterisk: Request from 'a' failed for '1.2.3.4:5' (callid: x' failed for '6.6.6.6') - No", _NONE),
    ("sogod: SOGoRootPage Login from '6.6.6.6, 1.2.3.4' for user 'x' might not have worked", _NONE),
    ("sogod: SOGoRootPage Login from '1.2.3.4, 10.0.0.1' for user 'x' might not have worked", {**_REAL, "user": "x"}),
    ("mysqld: Access denied for user 'x'@'6.6.6.6' y'@'1.2.3.4' (using password: YES)", {"src_ip": "1.2.3.4"}),
    ("smbd: Auth: user [D]\\[x] status [a] remote host [ipv4:1.2.3.4:5] mapped to [D]\\[x remote host [ipv4:6.6.6.6:1]",
     _NONE),
    ("app: [ip=1.2.3.4;ua=x;oip=6.6.6.6;] account - authentication failed for [x]", _REAL),
    ("app: login failed for user x from 6.6.6.6 Mozilla/ from 1.2.3.4", _NONE),
    ("app: login failed for bob (Mozilla/5.0 from 6.6.6.6)", _NONE),
    ('app: login failed for bob from 1.2.3.4 "Mozilla/5.0 from 6.6.6.6"', _REAL),
    ("%ASA-6-716039: Group <G> User <x> IP <6.6.6.6> to> IP <1.2.3.4> Authentication: rejected", _NONE),
    ("%ASA-6-716039: Group G User x IP 6.6.6.6 from IP 1.2.3.4 Authentication: rejected", _NONE),
    ("%ASA-6-716059: Group <G> User <x> IP <1.2.3.4> AnyConnect session resumed connection from IP <6.6.6.6>", _REAL),
    ("%ASA-5-713904: Group = G, Username = x, IP = 6.6.6.6, IP = 1.2.3.4, Session disconnected", _NONE),
    ("%ASA-5-713904: Group = x, IP = 6.6.6.6, y, IP = 1.2.3.4, Session disconnected", _NONE),
    ("%ASA-6-113005: AAA user authentication Rejected : user = a : user IP = 6.6.6.6 : user IP = 1.2.3.4", _NONE),
    ("%ASA-6-109006: Authentication failed for user 'x' from 6.6.6.6/1 to 2.2.2.2/3' from 1.2.3.4/5 to 2.2.2.2/9",
     _NONE),
    ("%ASA-6-304002: Access denied URL h SRC 6.6.6.6 DEST 2.2.2.2 SRC 1.2.3.4 DEST 2.2.2.2 on interface in", _NONE),
    ("%AAA-W-REJECT: New ssh connection for user a, source 6.6.6.6 destination b REJECTED, source 1.2.3.4 ...",
     _NONE),
    ("%SEC_LOGIN-4-LOGIN_FAILED: Login failed [user: a] [Source: 6.6.6.6] [localport: 1] x] [Source: 1.2.3.4] ...",
     _NONE),
    ("%FTD-6-430003: SrcIP: 1.2.3.4, User: a, UserAgent: x, SrcIP: 6.6.6.6, User: root, URL: http://x/",
     {**_REAL, "user": "a"}),
]  # fmt: skip
"""Lines of a client at 1.2.3.4, or of another that says so."""


@walk(("message", "fields"), FORGED)
def test_forged_peers(message: str, fields: dict[str, Any]) -> None:
    """A name that reads as the program's own words is not read as them: where none can say whose they are, no peer."""
    event = record(f"{HEAD}{message}".encode(), "auto", received_at=NOW)
    assert {name: event.get(name) for name in fields} == fields


@walk(
    "line",
    [
        "[Wed Nov 20 10:00:00 2024] [error] [client {}] x",
        "[Wed Nov 20 10:00:00.1 2024] [core:error] [pid 1] [client [{}]:5000] AH1: x",
        '{} - - [20/Nov/2024:10:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "x"',
        "2024/01/01 10:00:00 [error] 12#12: *1 open() failed, client: {}, server: x",
        HEAD + "nginx: 2024/01/01 10:00:00 [error] 12#12: *1 open() failed, client: {}, server: x",
        "type=USER_LOGIN msg=audit(1364481363.243:24287): pid=12 uid=0 addr={} res=failed",
        '{{"remote_ip":"{}"}}',
        '{{"remote_addr":"{}","request":"GET / HTTP/1.1","status":200}}',
        "CEF:0|V|P|1|id|n|5|src={}",
        HEAD + "sshd[7]: Invalid user x from {} port 5",
        HEAD + "app[7]: login failed from {}",
    ],
)
def test_mapped(line: str) -> None:
    """Of an IPv4-mapped address the IPv4 part, in every layout."""
    assert read(line.format(f"::ffff:{IP}"))[0] == read(line.format(IP))[0] == IP


def test_an_events_own_src_ip() -> None:
    """What an event's own JSON calls ``src_ip`` stays as it is."""
    assert read(f'{{"src_ip":"::ffff:{IP}"}}')[0] == f"::ffff:{IP}"


@pytest.mark.parametrize(
    ("event", "ip", "user"),
    [
        (f'{{"remoteAddr":"{IP}","user":"--","message":"Login failed: eve"}}', IP, "--"),
        (f'{{"remote_ip":"::ffff:{IP}","username":"eve","ok":false}}', IP, "eve"),
        (f'{{"clientIP":"[{V6}]:443","userName":"eve"}}', V6, "eve"),
        (f'{{"client_ip":"{IP}:55","src_ip":"{OURS}"}}', OURS, ABSENT),
        ('{"remote_host":"h.example"}', ABSENT, ABSENT),
        (f'{{"remote_addr":["{IP}"],"username":7}}', ABSENT, ABSENT),
        (f'{{"c":"ACCESS","ctx":"conn7","msg":"x","attr":{{"remote":"{IP}:4","principalName":"eve"}}}}', IP, "eve"),
    ],
)
def test_json(event: str, ip: Any, user: Any) -> None:
    """Applications' names of the peer's address; the event's own ``src_ip`` and ``user`` go before them."""
    assert read(event) == read(f"{HEAD}app[7]: {event}") == (ip, user)


def test_fields_are_declared() -> None:
    """Rows of programs name the same fields, so that the prefilter takes none of these names for the event's own."""
    assert all(fields.stands_as(field) is None for field in peers.FIELDS)
    assert all(set(form.groupindex) <= set(peers.FIELDS) for _, form in peers.forms())
    assert all(fields.provenance(field) is not Provenance.SYNTHETIC for field in peers.FIELDS)


_PARTS = st.sampled_from(
    [
        *(
            "login ",
            "failed ",
            "from ",
            "for ",
            "user ",
            "'eve' ",
            "user=<eve> ",
            "client ",
            "to ",
            "host ",
            "IP: ",
            "ip=",
        ),
        *(
            IP,
            V6,
            OURS,
            f"::ffff:{IP}",
            f"[{IP}]",
            f"({V6}):22",
            f"{IP}:5060",
            f"{OURS}/24",
            "h.example ",
            ", ",
            " ",
            "'",
        ),
        *('"', " H=", "[", "]", "|user|", "TCP_DENIED/403 ", "'@'", " failed for '", "\ufffd", "é"),
    ]
)


@settings(max_examples=300)
@given(st.lists(_PARTS, max_size=14), st.text(max_size=6))
def test_any_message(parts: list[str], noise: str) -> None:
    """Whatever is said: no exception, no field but the declared ones, all cut out of the message, the address one."""
    message = "".join(parts) + noise
    found = peers.read(message)
    assert found.keys() <= set(peers.FIELDS)
    assert all(value in message for value in found.values())
    assert "src_ip" not in found or peers._is_address(found["src_ip"])
    assert "user" not in peers.read(message, user_known=True) or any(needle in message for needle, _ in peers.FORMS)


_HOSTILE = [
    *(line for line, _, _ in LINES[::4]),
    *("1.1.1.1 ", "1.", "::1 ", "a:", ":" * 9, "login failed for user ", "user '", "user [", " from a.", "from "),
    *(":: ", "::, ", "::g ", "1.1.1.", "999.9.9.9 ", "@1.1.1.1 ", "user 'a' ", "Mozilla/", "10:11:12 ", "é:: "),
    *("H=(", "H=a [1", "' failed for '", "'a'@'", "(eve,", "auth: ", "|user|", "->", "user=<", "1.1.1.1/24 "),
]  # fmt: skip


@walk("part", _HOSTILE)
def test_linear(part: str) -> None:
    """1 MiB of any phrase, behind a failed login and by itself, or as much as is read at all, costs next to nothing: at
    the best of some times, since the interpreter may clean up in one."""

    def costs(message: str) -> float:
        began = time.process_time()
        peers.read(message)
        return time.process_time() - began

    for size in (peers.MAX_MESSAGE - 128, 1 << 20):
        text = part * (size // len(part))
        for message in (text, "login failed from 192.0.2.1 ::1 " + text, text + " login failed from 192.0.2.1"):
            assert any(costs(message) < 0.05 for _ in range(4))
