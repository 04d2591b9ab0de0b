"""Thirty classes of intrusion, each after what somebody published: ``source`` names it, ``attacks`` plays it.

Times are those of the reports where these give them: an hour from a login to ransomware (BlueSky), two days (Quantum,
Akira), weeks (Volt Typhoon), hours between logins of a worm. Titles are SigmaHQ's, or those of rules/sigma for what
SigmaHQ has no rule for: network devices' logins, plants, SSH.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

WHERE = re.compile(r"(\+?)(\w+?)(?:\*(\d+))?(?:@(\d+))?")


class Place(NamedTuple):
    """Where a step happens."""

    another: bool
    role: str
    hosts: int
    sites: int


class Step(NamedTuple):
    """A step; see ``attacks`` for the words."""

    rules: str
    where: str
    who: str
    times: tuple[float, float] = (1, 3)
    after: tuple[float, float] = (0.2, 2)
    over: float = 1.0
    turn: int | None = None
    every: float = 0.0

    @property
    def place(self) -> Place:
        match = WHERE.fullmatch(self.where)
        assert match is not None, self.where
        return Place(bool(match[1]), match[2], int(match[3] or 1), int(match[4] or 1))


class Playbook(NamedTuple):
    """A class of intrusion; ``silent``: in the end the site is."""

    name: str
    source: str
    steps: tuple[Step, ...]
    silent: bool = False

    @property
    def lead(self) -> tuple[float, float]:
        """How many hours lie between its beginning and its turn: about, and at most."""
        about, most = 0.0, 0.0
        for step in self.steps:
            about += math.sqrt(step.after[0] * step.after[1])
            most += step.after[1]
            if step.turn is not None:
                last = step.every * step.turn if step.every else step.over
                targets = step.place.hosts * step.place.sites
                return about + last / 2, most + last * (min(1, step.turn / targets) if targets > 1 else 1)
        raise ValueError(f"{self.name}: no step makes it an attack")


S = Step
PLAYBOOKS = (
    Playbook("VPN spray to ransomware", "CISA AA24-109A (Akira); The DFIR Report, Dagon Locker", (
        S("VPN Login Refused by a Cisco Firewall | VPN Login Refused by a FortiGate", "gateway", "ips victims",
          (60, 160), (0, 0), 20),
        S("Password Spray at the VPN", "gateway", "ips", (2, 5), (1, 4), 12),
        S("External Remote RDP Logon from Public IP", "server", "ip user", (1, 2), (18, 30)),
        S("PUA - AdFind Suspicious Execution | Nltest.EXE Execution | Share And Session Enumeration Using Net.EXE",
          "server", "user inner", (4, 8), (0.5, 3), 1, 1),
        S("LSASS Process Memory Dump Files | Process Memory Dump Via Comsvcs.DLL", "server", "user hash", (1, 2),
          (1, 6)),
        S("Impacket PsExec Execution | Access To ADMIN$ Network Share", "server*5@3", "admin inner", (1, 3), (2, 16),
          4),
        S("PUA - Rclone Execution | Rclone Activity via Proxy", "server", "admin hash2 domain", (2, 6), (6, 24), 3),
        S("Windows Defender Real-time Protection Disabled", "server*5@3", "admin", (1, 1), (4, 20), 1),
        S("Shadow Copies Deletion Using Operating Systems Utilities | Antivirus - Ransomware Signature", "server*8@3",
          "admin hash3", (1, 3), (0.5, 2), 1),
    )),
    Playbook("Macro to C2 beacon", "The DFIR Report, Quantum Ransomware (IcedID); ATT&CK S0483", (
        S("Suspicious Email Delivered In Microsoft 365", "workstation", "user domain", (1, 1), (0, 0)),
        S("Suspicious Microsoft Office Child Process", "workstation", "user hash", (1, 2), (0.5, 5), 0.2),
        S("Rundll32 Internet Connection", "workstation", "user ip hash", (1, 3), (0.05, 0.3), 0.2, 1),
        S("Scheduled Task Creation Via Schtasks.EXE", "workstation", "user hash", (1, 1), (0.1, 0.5)),
        S("Suspicious Group And Account Reconnaissance Activity Using Net.EXE | Suspicious Execution of Systeminfo | "
          "Nltest.EXE Execution", "workstation", "user", (4, 7), (0.1, 2), 0.5),
        S("Cobalt Strike DNS Beaconing", "workstation", "domain2 inner", (1, 1), (1, 3), 30, None, 1.5),
        S("CobaltStrike Named Pipe Patterns", "server*2", "admin hash2", (1, 2), (2, 12), 2),
    )),
    Playbook("Web shell on an exposed server", "CISA AA23-074A (Telerik); ATT&CK T1505.003", (
        S("Path Traversal Exploitation Attempts | Hack Tool User Agent", "web", "ip ua", (6, 25), (0, 0), 3),
        S("Potential Webshell Creation On Static Website", "web", "local hash", (1, 1), (2, 30), 0.1),
        S("Webshell Detection With Command Line Keywords | Chopper Webshell Process Pattern", "web", "ip local", (3, 9),
          (0.1, 4), 6, 1),
        S("Process Memory Dump Via Comsvcs.DLL", "web", "local", (1, 1), (2, 20)),
        S("Compress Data and Lock With Password for Exfiltration With 7-ZIP", "web", "local hash2", (1, 2), (6, 40), 2),
    )),
    Playbook("Stolen cloud key", "Unit 42, Leaked Environment Variables (2024); Sysdig, SCARLETEEL", (
        S("AWS STS GetCallerIdentity Enumeration Via TruffleHog", "cloud", "service ip ua", (1, 2), (0, 0), 0.1),
        S("Potential Bucket Enumeration on AWS", "cloud", "service ip ua", (20, 60), (0.2, 3), 1.5, 10),
        S("AWS IAM Backdoor Users Keys | AWS User Login Profile Was Modified", "cloud", "service ip", (1, 3), (0.2, 2)),
        S("AWS GuardDuty Detector Deleted Or Updated", "cloud", "service ip2", (1, 2), (0.5, 10), 0.2),
        S("AWS Snapshot Backup Exfiltration | Modification or Deletion of an AWS RDS Cluster", "cloud", "new ip2",
          (3, 9), (2, 20), 5),
    )),
    Playbook("Kerberoasting to DCSync", "ATT&CK G0102 (Wizard Spider); The DFIR Report, Defender's Guide", (
        S("Kerberoasting Activity - Initial Query", "dc", "user inner", (1, 2), (0, 0), 0.2),
        S("Suspicious Kerberos RC4 Ticket Encryption", "dc", "user inner", (8, 25), (0.02, 0.2), 0.1),
        S("Successful Overpass the Hash Attempt", "server", "service inner", (1, 2), (8, 60)),
        S("Active Directory Replication from Non Machine Account - DcSync Indicator", "dc", "service inner", (1, 3),
          (0.5, 8), 0.3, 1),
        S("Admin User Remote Logon | Access To ADMIN$ Network Share", "server*6", "admin inner", (1, 2), (2, 24), 5),
    )),
    Playbook("Update that was tampered with", "ATT&CK C0024 (SolarWinds); Mandiant, 3CX (2023)", (
        S("Suspicious DNS Query with B64 Encoded String", "server@14", "hash domain", (1, 2), (0, 0), 40),
        S("Renamed AdFind Execution", "server@2", "hash2 local", (1, 2), (60, 120), 6, 1),
        S("Suspicious Encoded PowerShell Command Line", "server@2", "admin hash2", (1, 3), (2, 10), 4),
        S("SAML Token Issuer Anomaly | Added Credentials to Existing Application", "server", "admin ip", (1, 2),
          (6, 48), 3),
    )),
    Playbook("Insider exports before leaving", "CERT National Insider Threat Center, Common Sense Guide 7th ed.", (
        S("Suspicious Access to Sensitive File Extensions", "workstation", "user inner", (6, 16), (0, 0), 60),
        S("Bitbucket User Details Export Attempt Detected | Bitbucket User Permissions Export Attempt", "ci", "user",
          (1, 2), (10, 40), 1),
        S("Bitbucket Full Data Export Triggered", "ci", "user", (1, 1), (0.2, 20), 0.1, 1),
        S("External Disk Drive Or USB Storage Device Was Recognized By The System", "workstation", "user device",
          (2, 5), (2, 30), 20),
        S("DNS Query To MEGA Hosting Website", "workstation", "user", (2, 6), (1, 20), 4),
    )),
    Playbook("Living off the land, low and slow", "CISA AA24-038A (Volt Typhoon)", (
        S("Computer System Reconnaissance Via Wmic.EXE | Suspicious Execution of Systeminfo | Nltest.EXE Execution",
          "server", "user", (5, 8), (0, 0), 110),
        S("Potentially Suspicious EventLog Recon Activity Using Log Query Utilities", "server", "user", (2, 3), (6, 30),
          40),
        S("Suspicious Usage Of Active Directory Diagnostic Tool (ntdsutil.exe) | "
          "Shadow Copies Creation Using Operating Systems Utilities", "dc", "admin", (1, 2), (80, 130), 0.5, 1),
        S("NTDS Exfiltration Filename Patterns", "dc", "admin", (1, 1), (0.2, 1)),
        S("New Port Forwarding Rule Added Via Netsh.EXE", "server", "admin", (1, 1), (4, 40), 10),
    )),
    Playbook("Engineering workstation to PLC", "Dragos, TRISIS (2017); CISA AA23-335A (Unitronics)", (
        S("External Remote RDP Logon from Public IP", "ews", "ip user", (1, 2), (0, 0)),
        S("Modbus Device Probed | Scan of Many Hosts for One Service", "plc*3", "inner", (2, 5), (4, 40), 4),
        S("OPC UA Session Activated | Login at a Device with a Factory User", "plc*3", "inner device", (1, 3), (2, 20),
          3),
        S("S7 Controller Stopped | Program Block Loaded into an S7 Controller | "
          "S7 Controller Stopped and Loaded with a Program", "plc*2", "inner device", (1, 4), (6, 48), 1, 1),
        S("Controller Left Its Run Mode | Safety Function Switched Off", "plc*2", "device", (1, 2), (0.1, 1), 0.3),
    )),
    Playbook("SSH keys spread a worm", "Sysdig, SSH-Snake (2024); ATT&CK T1021.004", (
        S("SSH Login Succeeded after Guessing", "linux", "ip user", (1, 1), (0, 0)),
        S("Suspicious Download and Execute Pattern via Curl/Wget", "linux", "ip2 user", (1, 2), (0.05, 0.5), 0.1),
        S("SSH Key Appended by a Command | File of Authorized SSH Keys Created or Replaced", "linux*3@5", "user hash",
          (1, 2), (0.2, 2), 16, 3),
        S("Linux Recon Indicators | History File Deletion", "linux*3@5", "user hash", (1, 2), (0.5, 2), 16),
    )),
    Playbook("Cryptominer rolled out", "Aqua, Kinsing (2020); ATT&CK G0139 (TeamTNT)", (
        S("Wget Creating Files in Tmp Directory", "linux*3@4", "local hash ip", (1, 2), (0, 0), 10),
        S("Cron Job Downloads and Runs a Program", "linux*3@4", "local ip", (1, 2), (0.2, 1), 10),
        S("Linux Crypto Mining Pool Connections | DNS Query for a Mining Pool", "linux*3@4", "hash domain", (2, 7),
          (0.2, 1), 12, 1),
        S("Disable System Firewall", "linux*2", "local", (1, 1), (0.2, 2)),
    )),
    Playbook("Tunnel in DNS", "Unit 42, OilRig's DNS tunnels; ATT&CK T1048.003", (
        S("Suspicious Encoded PowerShell Command Line", "workstation", "user hash", (1, 1), (0, 0)),
        S("Data Carried in DNS Names | Suspicious DNS Query with B64 Encoded String", "workstation", "domain inner",
          (1, 1), (1, 6), 80, 6, 0.7),
    )),
    Playbook("Worm on USB sticks at plants", "Microsoft, Raspberry Robin (2022); Red Canary", (
        S("External Disk Drive Or USB Storage Device Was Recognized By The System", "workstation*2@4", "device user",
          (1, 1), (0, 0), 70),
        S("Suspicious LNK Double Extension File Created | MsiExec Web Install", "workstation*2@4", "device hash domain",
          (1, 3), (0.1, 1), 70, 2),
        S("Query Tor Onion Address - DNS Client", "workstation*2@4", "hash", (1, 3), (2, 10), 70),
    )),
    Playbook("Mailbox rules for fraud", "FBI IC3 PSA I-091124 (BEC); Microsoft, AiTM phishing (2022)", (
        S("Unfamiliar Sign-In Properties | Anonymous IP Address", "cloud", "user ip ua", (1, 3), (0, 0)),
        S("Change to Authentication Method", "cloud", "user ip", (1, 1), (0.2, 4)),
        S("Suspicious Inbox Manipulation Rules", "cloud", "user ip", (1, 2), (0.5, 30), 0.5, 1),
        S("Suspicious Inbox Forwarding Identity Protection", "cloud", "user ip2", (1, 4), (1, 20), 40),
    )),
    Playbook("Escape from a container", "Unit 42, Siloscape (2021); MITRE ATT&CK for Containers T1611", (
        S("Kubernetes Unauthorized or Unauthenticated Access", "k8s", "ip", (5, 20), (0, 0), 2),
        S("Kubernetes Potential Enumeration Activity | RBAC Permission Enumeration Attempt", "k8s", "service ip",
          (3, 9), (0.2, 3), 0.5),
        S("Privileged Container Deployed | Container With A hostPath Mount Created", "k8s", "service", (1, 3),
          (0.1, 1)),
        S("Command That Breaks Out of a Container", "k8s", "service", (1, 2), (0.05, 0.5), 0.1, 1),
        S("Kubernetes Secrets Enumeration | Secrets of Many Kubernetes Namespaces Read", "k8s*3", "service", (2, 6),
          (0.2, 5), 2),
    )),
    Playbook("Secrets of a build server", "CircleCI incident report (2023); CISA, tj-actions CVE-2025-30066", (
        S("Github Self Hosted Runner Changes Detected | Github New Secret Created", "ci", "user", (1, 3), (0, 0), 1),
        S("Github Push Protection Disabled | Github Secret Scanning Feature Disabled", "ci", "user ip", (1, 2),
          (0.2, 8), 0.2),
        S("Script Interpreter Spawning Credential Scanner - Linux", "ci", "service hash", (1, 2), (0.1, 5), 0.3, 1),
        S("PUA - AWS TruffleHog Execution | Malicious Usage Of IMDS Credentials Outside Of AWS Infrastructure", "cloud",
          "service ip", (1, 4), (1, 30), 3),
    )),
    Playbook("An account at a new site each day", "CISA TA18-074A (Dragonfly); ATT&CK T1136.001", (
        S("New User Created Via Net.EXE", "server@9", "new inner", (1, 1), (0, 0), 215, 3),
        S("User Added to Local Administrator Group", "server@9", "new inner", (1, 1), (0.1, 0.2), 215),
    )),
    Playbook("An hourly beacon for days", "Mandiant, M-Trends (dwell time); ATT&CK T1071.001", (
        S("Suspicious Base64 Encoded User-Agent", "workstation", "ip inner", (1, 1), (0, 0), 144, 24, 1.0),
    )),
    Playbook("Scanner within a /64 gets in", "Richter et al., Illuminating Large-Scale IPv6 Scanning (IMC 2022)", (
        S("SSH Login Failed | SSH Login Attempt with an Unknown User Name", "linux*2@5", "net victims", (15, 30),
          (0, 0), 44),
        S("SSH Login Succeeded after Guessing", "linux", "net user", (1, 1), (30, 40), 0.1, 1),
        S("SSH Login from a Public Address", "linux*2", "net user", (1, 3), (0.5, 6), 5),
        S("Password or Sudo Rights File Touched by Sudo | Interactive Root Shell by Sudo", "linux", "user", (1, 3),
          (0.5, 6), 2),
    )),
    Playbook("Logs tampered with, then silence", "E-ISAC, Ukrainian grid (2016); ATT&CK T1562", (
        S("Failed Logon From Public IP", "server", "ip user", (3, 8), (0, 0), 3),
        S("External Remote RDP Logon from Public IP", "server", "ip user", (1, 1), (1, 12)),
        S("Security Eventlog Cleared | Suspicious Eventlog Clearing or Configuration Change Activity", "server*3",
          "user", (1, 2), (1, 20), 1, 1),
        S("Logging or Auditing Stopped | Auditing Configuration Changes on Linux Host", "linux*2", "user", (1, 2),
          (0.2, 2), 0.3),
    ), silent=True),
    Playbook("EDR disabled across hosts", "Sophos, AuKill (2023); CISA AA23-353A (ALPHV)", (
        S("Vulnerable Driver Load", "server*4@3", "local hash", (1, 1), (0, 0), 1.5, 2),
        S("Microsoft Defender Tamper Protection Trigger | Windows Filtering Platform Blocked Connection From EDR Agent "
          "Binary", "server*4@3", "admin hash", (1, 3), (0.05, 0.2), 1.5),
    )),
    Playbook("MFA fatigue", "Uber (2022); Microsoft, DEV-0537 (LAPSUS$)", (
        S("Multifactor Authentication Denied", "cloud", "user ip", (25, 60), (0, 0), 3, 15),
        S("New Country", "cloud", "user ip", (1, 1), (0.1, 1)),
        S("Suspicious SignIns From A Non Registered Device", "cloud", "user ip", (1, 1), (0.02, 0.3)),
        S("Bitbucket Unauthorized Access To A Resource | Okta Admin Functions Access Through Proxy", "cloud", "user ip",
          (2, 5), (0.5, 6), 4),
    )),
    Playbook("Mailboxes off an Exchange server", "CISA AA21-062A (HAFNIUM)", (
        S("Hack Tool User Agent | Suspicious Windows Strings In URI", "mail", "ip ua", (4, 12), (0, 0), 2),
        S("Mailbox Export to Exchange Webserver | Certificate Request Export to Exchange Webserver", "mail", "local",
          (1, 2), (1, 20), 0.3, 1),
        S("Process Memory Dump Via Comsvcs.DLL", "mail", "local", (1, 1), (1, 8)),
        S("Files Added To An Archive Using Rar.EXE", "mail", "local hash", (1, 3), (2, 20), 2),
    )),
    Playbook("SQL server guessed to ransomware in an hour", "The DFIR Report, BlueSky (2023)", (
        S("MSSQL Server Failed Logon From External Network", "db", "ip", (120, 260), (0, 0), 9),
        S("MSSQL XPCmdshell Option Change", "db", "ip", (1, 2), (8, 10), 0.05, 1),
        S("Suspicious Encoded PowerShell Command Line", "db", "local hash", (1, 3), (0.05, 0.1), 0.1),
        S("Access To ADMIN$ Network Share | Remote Service Activity via SVCCTL Named Pipe", "server*6", "admin inner",
          (1, 2), (0.1, 0.3), 0.2),
        S("Antivirus - Ransomware Signature", "server*6", "admin hash2", (1, 2), (0.1, 0.3), 0.2),
    )),
    Playbook("Remote access tool as a back door", "CISA AA23-025A (malicious use of RMM)", (
        S("DNS Query To Remote Access Software Domain From Non-Browser App", "workstation*3", "user domain", (1, 2),
          (0, 0), 40),
        S("Remote Access Tool - Anydesk Execution From Suspicious Folder | Remote Access Tool - AnyDesk Silent "
          "Installation", "workstation*3", "user hash", (1, 2), (0.05, 0.3), 40, 1),
        S("Remote Access Tool - AnyDesk Incoming Connection", "workstation*3", "user ip", (1, 4), (4, 20), 60),
    )),
    Playbook("Virtual machines of an ESXi host", "CISA AA23-039A (ESXiArgs); Mandiant, UNC3944", (
        S("ESXi System Information Discovery Via ESXCLI | ESXi VM List Discovery Via ESXCLI", "esxi*2", "admin inner",
          (1, 3), (0, 0), 1),
        S("ESXi Account Creation Via ESXCLI | ESXi Admin Permission Assigned To Account Via ESXCLI", "esxi*2",
          "admin new", (1, 1), (0.5, 8), 1, 1),
        S("ESXi Syslog Configuration Change Via ESXCLI", "esxi*2", "new", (1, 1), (0.5, 12)),
        S("ESXi VM Kill Via ESXCLI", "esxi*2", "new", (3, 10), (0.2, 3), 0.3),
    )),
    Playbook("Forged tokens in the cloud", "CISA AA21-008A; ATT&CK T1606.002", (
        S("Azure Domain Federation Settings Modified", "cloud", "admin ip", (1, 1), (0, 0)),
        S("SAML Token Issuer Anomaly", "cloud", "admin ip", (1, 2), (4, 40), 6, 1),
        S("Added Credentials to Existing Application | App Granted Microsoft Permissions", "cloud", "admin ip2", (1, 3),
          (2, 30), 4),
        S("Suspicious OAuth App File Download Activities", "cloud", "service ip2", (2, 6), (6, 40), 20),
    )),
    Playbook("Identity provider by the help desk", "CISA AA23-320A (Scattered Spider)", (
        S("Okta MFA Reset or Deactivated", "cloud", "admin", (1, 1), (0, 0)),
        S("Okta User Session Start Via An Anonymising Proxy Service", "cloud", "admin ip", (1, 2), (0.1, 1)),
        S("Okta Admin Role Assigned to an User or Group | Okta Identity Provider Created", "cloud", "admin ip", (1, 3),
          (0.1, 2), 0.5, 1),
        S("Okta Application Sign-On Policy Modified or Deleted | Okta API Token Created", "cloud", "admin ip", (1, 4),
          (0.5, 10), 4),
    )),
    Playbook("Routers and firewalls taken over", "CISA AA25-239A (Salt Typhoon); AA23-144A", (
        S("Login at a Cisco Device Failed | Login at a FortiGate Failed", "gateway@4", "ip", (2, 9), (0, 0), 20),
        S("Cisco Local Accounts | FortiGate - New Administrator Account Created", "gateway@4", "new ip", (1, 1),
          (2, 20), 12, 1),
        S("Cisco Disabling Logging | Cisco Sniffing", "gateway@4", "new ip", (1, 2), (1, 10), 12),
        S("Cisco Collect Data | Cisco Stage Data", "gateway@4", "new", (2, 5), (10, 40), 30),
    )),
    Playbook("Uploads drained from a transfer server", "CISA AA23-158A (CL0P, MOVEit)", (
        S("SQL Injection Strings In URI", "web@3", "ip ua", (4, 15), (0, 0), 3),
        S("Webshell ReGeorg Detection Via Web Logs | Antivirus - Web Shell Detection Signature", "web@3", "ip2 hash",
          (1, 2), (0.2, 4), 3, 1),
        S("Data Export From MSSQL Table Via BCP.EXE | Gigabytes Sent to One Public Address", "web@3", "ip2", (1, 4),
          (0.5, 6), 5),
    )),
)  # fmt: skip
"""All thirty, in an order in which every third is of every kind."""
