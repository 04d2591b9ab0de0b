"""JSON that vendors' programs write, after what they document: Beats, OpenTelemetry, CloudTrail, Kubernetes' audit, …

A function a kind: the event of a number, whose addresses, ids and times are new in nearly every event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import orjson

from bench import windows
from bench.values import AGENTS, WORDS, address, digits, time_of, uri, uuid
from vedette.inputs.push.otlp_events import events_of, surroundings
from vedette.inputs.push.texts import named

Event = dict[str, Any]
_COMMANDS = ("/usr/bin/ls -la", "/usr/sbin/cron -f", "/bin/sh -c date", "/usr/bin/python3 job.py", "/usr/bin/ps aux")


def _beat(rng: Random, number: int, module: str, fileset: str, event: Event) -> Event:
    host = f"web-{rng.randrange(20)}"
    return {
        "@timestamp": f"{time_of(number)}.{number % 1000:03}Z", "ecs": {"version": "8.11.0"},
        "service": {"type": module},
        "agent": {"ephemeral_id": uuid(rng), "id": f"agent-{host}", "name": host, "type": "filebeat",
                  "version": "9.2.0"},
        "host": {"hostname": host, "name": host, "ip": [address(rng, inside=True), "fe80::1"], "architecture": "x86_64",
                 "os": {"family": "debian", "kernel": "6.12.1", "name": "Debian GNU/Linux", "type": "linux"}},
        "fileset": {"name": fileset}, "input": {"type": "log"},
        "log": {"file": {"path": f"/var/log/{module}/{fileset}.log"}, "offset": number * 117},
        "event": {"dataset": f"{module}.{fileset}", "module": module, "kind": "event", "timezone": "+00:00",
                  "ingested": f"{time_of(number)}.{rng.randrange(10**9):09}Z", **event.pop("event")},
        **event,
    }  # fmt: skip


def _system_auth(rng: Random, number: int) -> Event:
    user, pid, peer = rng.choice(("root", "deploy", "anna", "admin")), rng.randrange(400, 65536), address(rng)
    if rng.random() < 0.3:
        return _beat(rng, number, "system", "auth", {
            "event": {}, "process": {"name": "CRON", "pid": pid}, "related": {"hosts": ["web"]}, "system": {"auth": {}},
            "message": f"pam_unix(cron:session): session opened for user {user}(uid={rng.randrange(2000)}) by (uid=0)",
        })  # fmt: skip
    fails, port = rng.random() < 0.4, rng.randrange(1024, 65536)
    return _beat(rng, number, "system", "auth", {
        "event": {"action": "ssh_login", "category": ["authentication", "session"],
                  "outcome": "failure" if fails else "success", "type": ["info"]},
        "process": {"name": "sshd", "pid": pid}, "source": {"address": peer, "ip": peer, "port": port},
        "user": {"name": user}, "related": {"ip": [peer], "user": [user], "hosts": ["web"]},
        "system": {"auth": {"ssh": {"event": "Failed" if fails else "Accepted", "method": "password"}}},
        "message": f"{'Failed' if fails else 'Accepted'} password for {user} from {peer} port {port} ssh2",
    })  # fmt: skip


def _beat_nginx(rng: Random, number: int) -> Event:
    peer, path, agent, status = address(rng), uri(rng), rng.choice(AGENTS), rng.choice((200, 200, 200, 301, 404))
    stem, _, query = path.partition("?")
    return _beat(rng, number, "nginx", "access", {
        "event": {"category": ["web"], "type": ["access"], "outcome": "success" if status < 400 else "failure"},
        "http": {"request": {"method": "GET"}, "version": "1.1",
                 "response": {"status_code": status, "body": {"bytes": rng.randrange(9**6)}}},
        "nginx": {"access": {"remote_ip_list": [peer]}}, "related": {"ip": [peer]}, "source": {"address": peer,
                                                                                               "ip": peer},
        "url": {"original": path, "path": stem, **({"query": query} if query else {})},
        "user_agent": {"original": agent, "name": agent.partition("/")[0], "device": {"name": "Other"}},
    })  # fmt: skip


def _winlogbeat(rng: Random, number: int) -> Event:
    event = windows.event(rng, number)
    code, data = event["winlog"]["event_id"], event["winlog"]["event_data"]
    process = {"entity_id": data["ProcessGuid"], "executable": data["Image"], "name": data["Image"].rpartition("\\")[2]}
    if code == 1:
        process |= {"command_line": data["CommandLine"], "pid": data["ProcessId"],
                    "parent": {"executable": data["ParentImage"], "pid": data["ParentProcessId"]}}  # fmt: skip
    return {
        **event, "ecs": {"version": "8.11.0"}, "agent": {"id": "a1", "type": "winlogbeat", "version": "9.2.0"},
        "event": {"code": str(code), "kind": "event", "provider": windows.SYSMON, "created": time_of(number) + "Z"},
        "log": {"level": "information"}, "process": process, "user": {"name": data["User"].rpartition("\\")[2]},
    }  # fmt: skip


def _otlp(rng: Random, number: int) -> Event:
    resource = {"service.name": rng.choice(WORDS), "service.version": "2.4.1", "k8s.namespace.name": "shop",
                "k8s.pod.name": f"{rng.choice(WORDS)}-{digits(rng, 40)}-{digits(rng, 20)}",
                "host.name": f"node-{rng.randrange(9)}", "telemetry.sdk.language": "go"}  # fmt: skip
    attributes: Event = {"thread.id": rng.randrange(99), "code.function": f"handle_{rng.choice(WORDS)}"}
    if rng.random() < 0.6:
        attributes |= {"http.method": "GET", "url.path": uri(rng), "client.address": address(rng)}
    text = f"order {digits(rng, 48)} of user {rng.randrange(10**6)} took {rng.randrange(999)} ms"
    time = (1_790_000_000_000 + number) * 10**6
    log = (time, 9, "INFO", text, named(attributes), "", digits(rng, 128), digits(rng, 64))
    about = surroundings(named(resource), {}, "shop/logger", "1.0")
    event: Event = orjson.loads(next(events_of([(about, [log])]))[0])
    return event


def _cloudtrail(rng: Random, number: int) -> Event:
    name, asked = rng.choice((
        ("s3 GetObject", {"bucketName": f"b-{digits(rng, 16)}", "key": f"{rng.choice(WORDS)}/{uuid(rng)}",
                          "Host": "s3"}),
        ("ec2 DescribeInstances", {"instancesSet": {"items": [{"instanceId": f"i-{digits(rng, 68)}"}]},
                                   "filterSet": {}}),
        ("ec2 CreateTags", {"resourcesSet": {"items": [{"resourceId": f"i-{digits(rng, 68)}"}]},
                            "tagSet": {"items": [{"key": rng.choice(WORDS), "value": uuid(rng)}] * rng.randint(1, 4)}}),
        ("sts AssumeRole", {"roleArn": "arn:aws:iam::111122223333:role/ci", "roleSessionName": uuid(rng)}),
        ("iam ListUsers", None), ("kms Decrypt", {"encryptionContext": {f"aws:{rng.choice(WORDS)}:arn": uuid(rng)}}),
    ))  # fmt: skip
    source, action = name.split()
    user: Event = {"type": "IAMUser", "userName": rng.choice(("anna", "deploy"))}
    if rng.random() < 0.7:
        issuer = {"type": "Role", "principalId": "AROAEXAMPLE", "arn": "arn:aws:iam::111122223333:role/ci"}
        session = {"creationDate": time_of(number) + "Z", "mfaAuthenticated": "false"}
        user = {"type": "AssumedRole", "sessionContext": {"sessionIssuer": issuer, "attributes": session}}
    return {
        "eventVersion": "1.11", "userIdentity": {
            "principalId": f"AIDA{digits(rng, 64)}", "arn": f"arn:aws:iam::111122223333:user/{rng.choice(WORDS)}",
            "accountId": "111122223333", "accessKeyId": f"ASIA{digits(rng, 64).upper()}", **user},
        "eventTime": time_of(number) + "Z", "eventSource": f"{source}.amazonaws.com", "eventName": action,
        "awsRegion": rng.choice(("eu-central-1", "us-east-1")), "sourceIPAddress": address(rng),
        "userAgent": rng.choice(AGENTS), "requestParameters": asked, "responseElements": None,
        "requestID": uuid(rng), "eventID": uuid(rng), "readOnly": action[0] in "GDL", "eventType": "AwsApiCall",
        "managementEvent": source != "s3", "recipientAccountId": "111122223333", "eventCategory": "Management",
        "tlsDetails": {"tlsVersion": "TLSv1.3", "cipherSuite": "TLS_AES_128_GCM_SHA256"},
        **({"errorCode": "AccessDenied", "errorMessage": f"not authorized: {uuid(rng)}"} if rng.random() < 0.1 else {}),
    }  # fmt: skip


def _kubernetes(rng: Random, number: int) -> Event:
    verb, resource = rng.choice(("get", "get", "list", "watch", "patch")), rng.choice(("pods", "nodes", "leases"))
    name, account = f"{rng.choice(WORDS)}-{digits(rng, 40)}", rng.choice(("coredns", "argocd", "node-controller"))
    event: Event = {
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": uuid(rng),
        "stage": "ResponseComplete", "requestURI": f"/api/v1/namespaces/shop/{resource}/{name}?timeout=5s",
        "verb": verb,
        "user": {"username": f"system:serviceaccount:kube-system:{account}", "uid": uuid(rng),
                 "groups": ["system:serviceaccounts", "system:authenticated"],
                 "extra": {"authentication.kubernetes.io/pod-name": [f"{account}-{digits(rng, 40)}"]}},
        "sourceIPs": [address(rng, inside=True)],
        "userAgent": f"{account}/v1.34.1 (linux/amd64) kubernetes/{digits(rng, 28)}",
        "objectRef": {"resource": resource, "namespace": "shop", "name": name, "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": 403 if rng.random() < 0.005 else 200},
        "requestReceivedTimestamp": f"{time_of(number)}.{rng.randrange(10**6):06}Z",
        "stageTimestamp": f"{time_of(number)}.{rng.randrange(10**6):06}Z",
        "annotations": {"authorization.k8s.io/decision": "allow",
                        "authorization.k8s.io/reason": f'RBAC: allowed by ClusterRoleBinding "{account}"'},
    }  # fmt: skip
    if verb == "patch":
        event |= {"level": "Request", "requestObject": {"metadata": {
            "labels": {"app": name},
            "annotations": {f"{rng.choice(WORDS)}.example/{digits(rng, 32)}": uuid(rng)}}}}  # fmt: skip
    return event


def _suricata(rng: Random, number: int) -> Event:
    kind = rng.choices(("alert", "dns", "http", "tls", "flow", "fileinfo"), (5, 30, 15, 15, 30, 5))[0]
    flow = {"pkts_toserver": rng.randrange(99), "pkts_toclient": rng.randrange(99),
            "bytes_toserver": rng.randrange(9**5),
            "bytes_toclient": rng.randrange(9**5), "start": time_of(number) + ".000001+0000"}  # fmt: skip
    http = {"hostname": f"{rng.choice(WORDS)}.example", "url": uri(rng), "http_user_agent": rng.choice(AGENTS),
            "http_method": "GET", "protocol": "HTTP/1.1", "status": 200, "length": rng.randrange(9**5)}  # fmt: skip
    name = f"{digits(rng, 20)}.{rng.choice(WORDS)}.example"
    own: Mapping[str, Event] = {
        "alert": {"alert": {"action": "allowed", "gid": 1, "signature_id": rng.randrange(2_000_000, 2_060_000),
                            "rev": 3,
                            "signature": f"ET INFO {rng.choice(WORDS)} request", "category": "Misc activity",
                            "severity": 3,
                            "metadata": {"created_at": ["2026_01_02"], "signature_severity": ["Informational"]}},
                  "http": http, "app_proto": "http", "flow": flow, "direction": "to_server"},
        "dns": {"dns": {"version": 3, "type": "response", "tx_id": 1, "id": rng.randrange(65536), "flags": "8180",
                        "qr": True,
                        "rcode": "NOERROR", "queries": [{"rrname": name, "rrtype": "A"}],
                        "answers": [{"rrname": name, "rrtype": "A", "ttl": rng.randrange(3600), "rdata": address(rng)}
                                    for _ in range(rng.randint(1, 4))]}},
        "http": {"tx_id": 0, "http": http},
        "tls": {"tls": {"sni": name, "version": "TLS 1.3", "subject": f"CN={name}", "issuerdn": "C=US, O=CA, CN=R11",
                        "serial": digits(rng, 128), "fingerprint": digits(rng, 160), "ja3": {"hash": digits(rng,
                                                                                                            128)}}},
        "flow": {"app_proto": "tls", "flow": flow | {"end": time_of(number) + ".5+0000", "age": rng.randrange(300),
                                                     "state": "closed", "reason": "timeout", "alerted": False}},
        "fileinfo": {"http": http, "app_proto": "http", "fileinfo": {
            "filename": uri(rng), "gaps": False, "state": "CLOSED", "stored": False, "size": rng.randrange(9**6),
            "tx_id": 0}},
    }  # fmt: skip
    return {
        "timestamp": f"{time_of(number)}.{rng.randrange(10**6):06}+0000", "flow_id": rng.getrandbits(50),
        "in_iface": "eth0",
        "event_type": kind, "src_ip": address(rng, inside=True), "src_port": rng.randrange(1024, 65536),
        "dest_ip": address(rng), "dest_port": 443, "proto": "TCP", "pkt_src": "wire/pcap", "ip_v": 4, **own[kind],
    }  # fmt: skip


def _falco(rng: Random, number: int) -> Event:
    command, pod = rng.choice(_COMMANDS), f"{rng.choice(WORDS)}-{digits(rng, 40)}"
    fields = {"container.id": digits(rng, 48), "container.image.repository": "shop/web", "evt.time": number * 10**6,
              "k8s.ns.name": "shop", "k8s.pod.name": pod, "proc.cmdline": command, "proc.name": command.split()[0],
              "proc.pname": "runc", "proc.tty": 0, "user.loginuid": -1, "user.name": "root"}  # fmt: skip
    if rng.random() < 0.4:
        fields |= {"fd.name": f"/tmp/{digits(rng, 48)}", "evt.type": "openat"}
    return {
        "hostname": f"node-{rng.randrange(9)}", "output": f"{time_of(number)}: Notice {command} in {pod} ({fields})",
        "output_fields": fields, "priority": "Notice", "rule": f"Process in {rng.choice(WORDS)}", "source": "syscall",
        "tags": ["container", "mitre_execution", "process"], "time": f"{time_of(number)}.{rng.randrange(10**9):09}Z",
    }  # fmt: skip


def _osquery(rng: Random, number: int) -> Event:
    command = rng.choice(_COMMANDS)
    name, columns = rng.choice((
        ("processes", {"pid": str(rng.randrange(65536)), "name": command.split()[0], "cmdline": command,
                       "on_disk": "1"}),
        ("listening_ports", {"address": "0.0.0.0", "port": str(rng.randrange(65536)),
                             "pid": str(rng.randrange(65536))}),
        ("file_events", {"target_path": f"/etc/{digits(rng, 40)}", "action": "UPDATED", "sha256": digits(rng, 256)}),
    ))  # fmt: skip
    return {
        "name": f"pack_base_{name}", "hostIdentifier": f"node-{rng.randrange(20)}", "calendarTime": time_of(number),
        "unixTime": 1_790_000_000 + number, "epoch": 0, "counter": number, "numerics": False,
        "decorations": {"host_uuid": uuid(rng), "username": "root"}, "columns": columns, "action": "added",
    }  # fmt: skip


def _sysmon_linux(rng: Random, number: int) -> Event:
    command, stamp, code = rng.choice(_COMMANDS), f"{time_of(number)}.{number % 1000:03}", rng.choice((1, 1, 3, 11))
    data: Event = {"RuleName": "-", "UtcTime": stamp, "ProcessGuid": "{" + uuid(rng) + "}",
                   "ProcessId": rng.randrange(65536), "Image": command.split()[0], "User": "root"}  # fmt: skip
    own: Mapping[int, Event] = {
        1: {"CommandLine": command, "CurrentDirectory": "/", "LogonId": 0, "TerminalSessionId": rng.randrange(99),
            "ParentImage": "/usr/bin/bash", "ParentCommandLine": "bash", "ParentProcessId": rng.randrange(65536)},
        3: {"Protocol": "tcp", "Initiated": True, "SourceIp": address(rng, inside=True),
            "SourcePort": rng.randrange(65536),
            "DestinationIp": address(rng), "DestinationPort": 443},
        11: {"TargetFilename": f"/tmp/{digits(rng, 48)}", "CreationUtcTime": stamp},
    }  # fmt: skip
    return {"Event": {"EventData": data | own[code], "System": {
        "Provider": {"Name": "Linux-Sysmon", "Guid": "{ff032593-a8d3-4f13-b0d6-01fc615a0f97}"}, "EventID": code,
        "Version": 5,
        "Level": 4, "Keywords": "0x8000000000000000", "TimeCreated": {"SystemTime": stamp + "000000Z"},
        "EventRecordID": number, "Execution": {"ProcessID": 812, "ThreadID": 812}, "Security": {"UserId": "0"},
        "Channel": "Linux-Sysmon/Operational", "Computer": f"web-{rng.randrange(20)}"}}}  # fmt: skip


def _journal(rng: Random, number: int) -> Event:
    program, pid, stamp = (
        rng.choice(("sshd", "sudo", "kubelet", "nginx")),
        rng.randrange(65536),
        1_790_000_000_000_000 + number,
    )
    text = {"sshd": f"Connection closed by {address(rng)} port {pid} [preauth]",
            "sudo": "anna : TTY=pts/0 ; COMMAND=/bin/ls",
            "kubelet": f"pod {uuid(rng)} synced", "nginx": f"upstream {address(rng)} timed out"}[program]  # fmt: skip
    return {
        "__CURSOR": f"s={digits(rng, 128)};i={number:x}", "__REALTIME_TIMESTAMP": str(stamp), "_PID": str(pid),
        "_UID": "0",
        "__MONOTONIC_TIMESTAMP": str(number), "_BOOT_ID": digits(rng, 128), "_HOSTNAME": "web-1", "PRIORITY": "6",
        "SYSLOG_FACILITY": "10", "SYSLOG_IDENTIFIER": program, "_COMM": program, "_EXE": f"/usr/sbin/{program}",
        "_CMDLINE": f"/usr/sbin/{program} -D", "_SYSTEMD_UNIT": f"{program}.service", "_TRANSPORT": "syslog",
        "MESSAGE": text,
    }  # fmt: skip


KINDS: Mapping[str, Callable[[Random, int], Event]] = {
    "Filebeat, system auth": _system_auth, "Filebeat, nginx": _beat_nginx, "Winlogbeat": _winlogbeat, "OTLP": _otlp,
    "CloudTrail": _cloudtrail, "Kubernetes audit": _kubernetes, "Suricata": _suricata, "Falco": _falco,
    "osquery": _osquery, "Sysmon for Linux": _sysmon_linux, "journal": _journal,
}  # fmt: skip
