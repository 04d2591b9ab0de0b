"""What Cisco's firewalls and routers write, message by message of their guides, with ports and without."""

from __future__ import annotations

import re

from tests.differences import walk
from vedette.decode.decoder import record

A, B, USER = "203.0.113.9", "192.0.2.1", "kim"
PEERS = {"src_ip": A, "dst_ip": B}
PORTS = {**PEERS, "src_port": "5", "dst_port": "9"}
WHO = {"src_ip": A, "user": USER}

ASA = [
    (106001, "Inbound TCP connection denied from A/5 to B/9 flags SYN  on interface out", PORTS),
    (106006, "Deny inbound UDP from A/5 to B/9 on interface out", PORTS),
    (106010, "Deny inbound protocol 47 src out:A dst in:B", {**PEERS, "protocol": "47"}),
    (106014, "Deny inbound icmp src out: A dst in: B (type 8, code 0)", {**PEERS, "protocol": "icmp"}),
    (106015, "Deny TCP (no connection) from A/5 to B/9 flags RST  on interface out", PORTS),
    (106016, "Deny IP spoof from (A) to B on interface out", PEERS),
    (106017, "Deny IP due to Land Attack from A to B", PEERS),
    (106018, "ICMP packet type 8 denied by outbound list acl src A dest B", {**PEERS, "rule_name": "acl"}),
    (106020, "Deny IP teardrop fragment (size = 7, offset = 9) from A to B", PEERS),
    (106021, "Deny TCP reverse path check from A to B on interface out", PEERS),
    (106022, "Deny tcp connection spoof from A to B on interface out", PEERS),
    (106023, 'Deny udp src out:A/5 dst in:B/9 by access-group "o" [0x0, 0x0]', {**PORTS, "rule_name": "o"}),
    (106023, 'Deny icmp src out:A dst in:B (type 8, code 0) by access-group "o"', {**PEERS, "rule_name": "o"}),
    (106023, 'Deny protocol 50 src out:A dst in:B by access-group "o"', {**PEERS, "rule_name": "o", "protocol": "50"}),
    (106023, r'Deny tcp src out:A/5(LOCAL\kim) dst in:B/9 type 3, code 0, by access-group "o"', {"rule_name": "o"}),
    (106023, 'Deny icmp src out:2001:db8::1 dst in:2001:db8::2 (type 128, code 0) by access-group "o"',
     {"src_ip": "2001:db8::1", "dst_ip": "2001:db8::2"}),
    (106100, "access-list acl denied tcp out/A(5) -> in/B(9) hit-cnt 1 first hit", {**PORTS, "action": "denied"}),
    (106100, "access-list acl denied icmp out/A(8) -> in/B(0) hit-cnt 1 first hit", {**PEERS, "protocol": "icmp"}),
    (106102, "access-list acl permitted udp for user 'kim' out/A(5) -> in/B(9) hit-cnt 1", {**PORTS, "user": USER}),
    (302014, "Teardown TCP connection 7 for out:A/5 to in:B/9 duration 0:00:30 bytes 7 TCP FINs", PORTS),
    (302013, r"Built inbound TCP connection 7 for out:A/5 (A/5)(LOCAL\kim) to in:B/9 (B/9) (kim)", PORTS),
    (302020, "Built inbound ICMP connection for faddr A/0 gaddr 198.51.100.1/0 laddr B/0 type 8 code 0", PEERS),
    (302021, r"Teardown ICMP connection for faddr A/0(LOCAL\kim) gaddr 198.51.100.1/0 laddr B/0 (kim)", PEERS),
    (302022, "Built director stub TCP connection for out:A/5 (A/5) to in:B/9 (B/9)", PORTS),
    (302303, "Built TCP state-bypass connection 7 from out:A/5 (A/5) to in:B/9 (B/9)", PORTS),
    (305011, "Built dynamic TCP translation from in:A/5 to out:B/9", PORTS),
    (313001, "Denied ICMP type=3, code=3 from A on interface out", {"src_ip": A, "action": "Denied"}),
    (313004, "Denied ICMP type=0, from laddr A on interface in to B: no matching session", PEERS),
    (313005, "No matching connection for ICMP error message: icmp src out:A dst in:B (type 3, code 3) on out", PEERS),
    (313008, "Denied IPv6-ICMP type=134, code=0 from fe80::1 on interface out", {"src_ip": "fe80::1"}),
    (313009, "Denied invalid ICMP code 9, for out:A/5 (A/5) to identity:B/0 (B/0), ICMP id 5, ICMP type 8", PEERS),
    (710003, "TCP access denied by ACL from A/5 to out:B/9", PORTS),
    (710006, "VRRP request discarded from A to out:B", PEERS),
    (605004, 'Login denied from A/5 to in:B/ssh for user "kim"', {**WHO, "dst_ip": B, "service": "ssh"}),
    (611102, "User authentication failed: IP address: A, Uname: kim", {**WHO, "action": "failed"}),
    (109006, "Authentication failed for user 'kim' from A/5 to B/9 on interface out", {**PORTS, "user": USER}),
    (111009, "User 'kim' executed cmd: show run", {"user": USER, "cmd": "show run"}),
    (113015, "AAA user authentication Rejected : reason = bad : local database : user = kim : user IP = A", WHO),
    (113019, "Group = vpn, Username = kim, IP = A, Session disconnected. Session Type: SSL, Duration: 0h:01m:02s, "
     "Bytes xmt: 1, Bytes rcv: 2, Reason: User Requested", {**WHO, "group": "vpn", "reason": "User Requested"}),
    (713228, "Group = vpn, Username = kim, IP = A, Assigned private IP address 10.0.0.7 to remote user", WHO),
    (713903, "IP = A, All IPSec SA proposals found unacceptable!", {"src_ip": A}),
    (113039, "Group <vpn> User <kim> IP <A> AnyConnect parent session started.", WHO),
    (716002, "Group vpn User kim IP A WebVPN session terminated: Idle timeout.", {**WHO, "group": "vpn"}),
    (722051, "Group <a b> User <kim> IP <A> IPv4 Address <10.0.0.7> IPv6 address <::> assigned to session", WHO),
    (750003, "Local:B:500 Remote:A:500 Username:kim Negotiation aborted", {**PEERS, "user": USER}),
    (602303, "IPSEC: An outbound LAN-to-LAN SA (SPI= 0x1) between B and A (user= kim) has been created.", WHO),
    (402119, "IPSEC: Received an ESP packet (SPI= 0x0C, sequence number= 0x5) from A (user= kim) to B that", WHO),
    (725001, "Starting SSL handshake with client out:A/5 to B/9 for TLS session", PORTS),
    (338002, "Dynamic Filter permitted black listed TCP traffic from out:A/5 (A/5) to in:B/9 (B/9)", PORTS),
    (304001, "kim@A Accessed URL B:http://h.example/x", {**PEERS, "user": USER, "url": "http://h.example/x"}),
    (304002, "Access denied URL http://h.example/x SRC A DEST B on interface in", PEERS),
    (430003, "EventPriority: Low, AccessControlRuleAction: Block, SrcIP: A, DstIP: B, SrcPort: 5, DstPort: 9, "
     "Protocol: tcp, ACPolicy: a, b, AccessControlRuleName: no, User: kim",
     {**PORTS, "SrcIP": A, "action": "Block", "rule_name": "no", "user": USER}),
]  # fmt: skip

IOS = [
    ("SEC-6-IPACCESSLOGP", "list 7 denied tcp A(5) -> B(9), 1 packet", {**PORTS, "rule_name": "7"}),
    ("SEC-6-IPACCESSLOGDP", "list 7 denied icmp A -> B (3/4), 1 packet", PEERS),
    ("SEC-6-IPACCESSLOGRP", "list 7 denied igmp A -> B, 1 packet", PEERS),
    ("SEC-6-IPACCESSLOGNP", "list 7 denied 0 A -> B, 1 packet", PEERS),
    ("SEC-6-IPACCESSLOGP", "list in permitted tcp A(5) (Gi0/1 0011.2233.4455) -> B(9), 1 packet", PORTS),
    ("FMANFP-6-IPACCESSLOGP", "R0/0: fman_fp_image: list in denied tcp A(5) -> B(9), 1 packet", PORTS),
    ("IPV6-6-ACCESSLOGP", "list a/10 permitted tcp 2001:db8::1(5) -> 2001:db8::2(9), 9 packets",
     {"src_ip": "2001:db8::1", "dst_port": "9"}),
    ("ACL-IPV4_ACL-6-IPACCESSLOGP", "access-list out deny tcp A(5) -> B(9), 1 packet", {**PORTS, "action": "deny"}),
    ("SEC_LOGIN-4-LOGIN_FAILED", "Login failed [user: kim] [Source: A] [localport: 22] [Reason: x] at", WHO),
    ("SYS-6-LOGOUT", "User kim has exited tty session 3(A)", WHO),
    ("AAA-W-REJECT", "New ssh connection for user kim, source A destination B REJECTED", {**WHO, "dst_ip": B}),
]  # fmt: skip


def differs(tag: str, message: str, expected: dict[str, str]) -> dict[str, object]:
    said = re.sub(r"\b[AB]\b", lambda match: A if match[0] == "A" else B, message)
    event = record(f"<164>Nov 28 2026 03:29:33: %{tag}: {said}".encode(), "syslog")
    return {name: event.get(name) for name, value in expected.items() if event.get(name) != value}


@walk(("number", "message", "expected"), ASA)
def test_asa(number: int, message: str, expected: dict[str, str]) -> None:
    """Each message gives whose packets, sessions and logins it is about."""
    assert differs(f"ASA-4-{number}", message, expected) == {}
    assert differs(f"FTD-4-{number}", message, expected) == {}


@walk(("tag", "message", "expected"), IOS)
def test_ios(tag: str, message: str, expected: dict[str, str]) -> None:
    """So do routers and switches."""
    assert differs(tag, message, expected) == {}
