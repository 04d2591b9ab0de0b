"""What goes on every day: rules' noise on each host, scanners of the internet, accounts that go about everywhere.

A rule's noise differs from site to site and from host to host by orders of magnitude (lognormal, sigma 1.2 and 0.9),
and comes in clusters; people work from eight to six on weekdays of their own time zone, machines by night. Of the
internet's scanners most are met once, some every day at every site.
"""

from __future__ import annotations

from bisect import bisect
from itertools import accumulate
from typing import NamedTuple

from tests.spark_jobs.playbooks.world import Author, Entity, Site


class Noise(NamedTuple):
    """A rule's false alarms: on hosts of which roles, alerts a host and day, whom they name, at which share of sites,
    whether people cause them."""

    title: str
    roles: str
    rate: float
    who: str
    share: float = 1.0
    people: bool = True


N = Noise
NOISE = (
    N("Potential Encoded PowerShell Patterns In CommandLine", "workstation server", 0.5, "system", 0.6, False),
    N("Suspicious Encoded PowerShell Command Line", "server", 0.3, "system", 0.25, False),
    N("Scheduled Task Creation Via Schtasks.EXE", "workstation server", 0.25, "person", 0.9),
    N("Start Windows Service Via Net.EXE", "server workstation", 0.3, "admin", 0.7),
    N("Stop Windows Service Via Net.EXE", "server workstation", 0.3, "admin", 0.7),
    N("Windows Share Mount Via Net.EXE", "workstation", 0.5, "person", 0.8),
    N("Share And Session Enumeration Using Net.EXE", "workstation server", 0.06, "person", 0.5),
    N("Nltest.EXE Execution", "server dc", 0.12, "admin", 0.4, False),
    N("Suspicious Execution of Systeminfo", "workstation server", 0.15, "system", 0.6, False),
    N("Computer System Reconnaissance Via Wmic.EXE", "workstation server", 0.12, "system", 0.4, False),
    N("Group Membership Reconnaissance Via Whoami.EXE", "workstation", 0.1, "person", 0.6),
    N("Windows Service Terminated With Error", "server dc workstation", 0.4, "", 1.0, False),
    N("Windows Update Error", "server dc workstation", 0.5, "", 1.0, False),
    N("Important Windows Service Terminated Unexpectedly", "server", 0.05, "", 0.5, False),
    N("NTLM Logon", "dc server", 2.5, "person inner", 0.9),
    N("Admin User Remote Logon", "dc server", 0.8, "admin inner", 0.9),
    N("Access To ADMIN$ Network Share", "server dc", 0.5, "admin inner", 0.8),
    N("Account Lockout", "cloud", 6, "anybody ip", 1.0),
    N("Multifactor Authentication Denied", "cloud", 5, "anybody home", 1.0),
    N("Multifactor Authentication Interrupted", "cloud", 9, "anybody home", 1.0),
    N("Unfamiliar Sign-In Properties", "cloud", 3, "anybody ip", 1.0),
    N("New Country", "cloud", 0.8, "anybody ip", 1.0),
    N("Sign-ins by Unknown Devices", "cloud", 8, "anybody home", 1.0),
    N("End User Consent", "cloud", 4, "anybody", 1.0),
    N("Suspicious Inbox Forwarding", "cloud", 0.7, "anybody", 1.0),
    N("Suspicious Email Delivered In Microsoft 365", "cloud mail", 4, "anybody domain", 1.0),
    N("AWS STS AssumeRole Misuse", "cloud", 12, "service", 1.0, False),
    N("AWS STS GetSessionToken Misuse", "cloud", 5, "service", 0.8, False),
    N("New Network ACL Entry Added", "cloud", 1, "admin", 0.8),
    N("Ingress/Egress Security Group Modification", "cloud", 2, "admin", 1.0),
    N("Potential Bucket Enumeration on AWS", "cloud", 1.5, "service", 0.6, False),
    N("Okta Policy Modified or Deleted", "cloud", 0.4, "admin", 0.7),
    N("Okta MFA Reset or Deactivated", "cloud", 0.9, "admin", 0.8),
    N("Kerberoasting Activity - Initial Query", "dc", 0.08, "service inner", 0.3, False),
    N("Suspicious Kerberos RC4 Ticket Encryption", "dc", 1.2, "service inner", 0.5, False),
    N("A Member Was Added to a Security-Enabled Global Group", "dc", 0.7, "admin", 0.9),
    N("User Added to Local Administrator Group", "server", 0.03, "admin", 0.6),
    N("New User Created Via Net.EXE", "server", 0.015, "admin", 0.5),
    N("External Disk Drive Or USB Storage Device Was Recognized By The System", "workstation ews", 0.12,
      "person device", 0.9),
    N("USB Device Plugged", "workstation ews", 0.4, "device", 0.6),
    N("USB Storage Attached", "linux plc", 0.02, "device", 0.5),
    N("Windows Defender Threat Detected", "workstation", 0.012, "person hash", 1.0),
    N("Antivirus - Relevant File Paths Alerts Signature", "workstation", 0.01, "person hash", 0.8),
    N("Windows Defender Exclusions Added", "server workstation", 0.03, "admin", 0.5),
    N("Python Initiated Connection", "linux server workstation", 0.2, "service home", 0.3, False),
    N("HTTP Request With Empty User Agent", "workstation server", 0.2, "inner domain", 0.8, False),
    N("Windows PowerShell User Agent", "server", 0.5, "inner domain", 0.6, False),
    N("DNS Query To Remote Access Software Domain From Non-Browser App", "workstation", 0.05, "person domain", 0.5),
    N("DNS Query To MEGA Hosting Website", "workstation", 0.008, "person", 0.5),
    N("Download From Suspicious TLD - Blacklist", "workstation", 0.2, "person domain", 1.0),
    N("Files Added To An Archive Using Rar.EXE", "server workstation", 0.05, "person", 0.4),
    N("MSSQL Server Failed Logon", "db", 3, "service inner", 1.0, False),
    N("Data Export From MSSQL Table Via BCP.EXE", "db", 0.6, "service", 0.5, False),
    N("SSH Login Accepted", "linux web k8s ci esxi", 2.5, "admin inner", 1.0),
    N("SSH Login Failed", "linux web k8s ci", 0.8, "admin inner", 1.0),
    N("Failed Switch to Root with Su", "linux", 0.05, "admin", 0.7),
    N("Interactive Root Shell by Sudo", "linux ci web", 0.25, "admin", 0.8),
    N("Wrong Sudo Passwords Again and Again", "linux", 0.02, "admin", 0.8),
    N("System Information Discovery", "linux k8s ci", 1.5, "service", 0.7, False),
    N("System Network Discovery - Linux", "linux k8s", 1.0, "service", 0.6, False),
    N("File and Directory Discovery - Linux", "linux ci", 1.2, "service", 0.5, False),
    N("Nohup Execution", "linux", 0.2, "service", 0.5, False),
    N("Service Reload or Start - Linux", "linux web", 0.8, "root", 0.8, False),
    N("Reverse Shell in a Logged Command", "db", 0.6, "service", 0.3, False),
    N("Scheduled Cron Task/Job - Linux", "linux", 0.1, "root", 0.6, False),
    N("Program Ended by a Memory Fault", "linux web db", 0.1, "", 0.8, False),
    N("File Access Denied by the Audit Log", "linux", 0.5, "anybody", 0.6),
    N("Kubernetes Secrets Enumeration", "k8s", 0.6, "service", 0.7, False),
    N("Privileged Container Deployed", "k8s", 0.3, "service", 0.6, False),
    N("Kubernetes Unauthorized or Unauthenticated Access", "k8s", 1.5, "service", 0.9, False),
    N("Potential Remote Command Execution In Pod Container", "k8s", 0.2, "admin", 0.7),
    N("Github New Secret Created", "ci", 0.6, "anybody", 0.9),
    N("Github Self Hosted Runner Changes Detected", "ci", 0.5, "service", 0.8, False),
    N("Github Push Protection Bypass Detected", "ci", 0.25, "anybody", 0.7),
    N("ESXi System Information Discovery Via ESXCLI", "esxi", 0.15, "admin", 0.5, False),
    N("Cisco Show Commands Input", "gateway", 1.5, "admin", 0.8),
    N("Cisco Collect Data", "gateway", 0.5, "service", 0.5, False),
    N("Login at a Cisco Device Failed", "gateway", 0.3, "admin inner", 0.8),
    N("Cisco Device Configured over the Network", "gateway", 0.3, "admin", 0.8),
    N("VPN Login Refused by a Cisco Firewall", "gateway", 1.5, "anybody home", 0.9),
    N("VPN Login Refused by a FortiGate", "gateway", 1.0, "anybody home", 0.5),
    N("OPC UA Session Activated", "plc", 1.2, "device", 0.8, False),
    N("Temperature Reading Out of Range", "plc", 0.8, "device", 0.7, False),
    N("Device Offline by Its Last Will", "plc", 0.7, "device", 1.0, False),
    N("Device That Breaks Off Again and Again", "plc", 0.2, "device", 0.6, False),
    N("Modbus Request Refused", "plc", 0.6, "device inner", 0.6, False),
    N("MQTT Client That Connects Again and Again", "plc", 0.3, "device", 0.7, False),
    N("Vibration of a Machine Too Strong", "plc", 0.15, "device", 0.4, False),
    N("Program Block Loaded into an S7 Controller", "plc", 0.006, "device", 0.6),
)  # fmt: skip
SCANS = (
    ("gateway", "Packet Refused by a Cisco Firewall", 40), ("gateway", "Port Scan of a Host", 6),
    ("linux", "SSH Login Failed", 25), ("linux", "SSH Login Attempt with an Unknown User Name", 20),
    ("linux", "SSH Service Probed by a Scanner", 4), ("web", "Page Not Found", 20),
    ("web", "Path Traversal Exploitation Attempts", 6), ("web", "SQL Injection Strings In URI", 4),
    ("web", "Suspicious User-Agents Related To Recon Tools", 6), ("web", "JNDIExploit Pattern", 1),
    ("web", "Hack Tool User Agent", 2), ("server", "Failed Logon From Public IP", 6),
    ("db", "MSSQL Server Failed Logon From External Network", 4),
    ("k8s", "Kubernetes Unauthorized or Unauthenticated Access", 2),
)  # fmt: skip
"""What scanners set off on which hosts, and how often."""
SCANNED = 0.35
"""Of all alerts the share that is of the internet's scanners."""
HUMAN = [0.05] * 6 + [0.2, 0.6, 1.2, 1.5, 1.4, 1.2, 1.0, 1.3, 1.4, 1.2, 0.9, 0.5, 0.3, 0.2, 0.15, 0.1, 0.08, 0.05]
MACHINE = [1.6, 1.9, 1.8, 1.4, 1.0, 0.8] + [0.8] * 14 + [0.9, 1.0, 1.2, 1.4]


class Everyday:
    """The region's everyday."""

    def __init__(self, author: Author) -> None:
        self.author, self.draw = author, author.draw
        self.domains = [author.domain() for _ in range(400)]
        self.hashes = [author.digest() for _ in range(120)]
        self.travelling = [f"adm-{self.draw.choice(site.people)}" for site in author.sites[::6]]
        """Administrators who go about at all sites."""
        self.homes = {site.number: [author.address() for _ in range(12)] for site in author.sites}
        self.admins = {site.number: [f"adm-{name}" for name in site.people[:3]] for site in author.sites}
        self.weights = {
            (site.number, people): list(
                accumulate(self._weight(site, hour, people) for hour in range(round(author.hours)))
            )
            for site in author.sites
            for people in (True, False)
        }

    def _weight(self, site: Site, hour: int, people: bool) -> float:
        when = self.author.at(hour + site.zone)
        if people:
            return HUMAN[when.hour] * (1.0 if when.weekday() < 5 else 0.12)
        return MACHINE[when.hour]

    def when(self, site: Site, people: bool) -> float:
        """An hour, by what is done at it there."""
        weights = self.weights[site.number, people]
        return bisect(weights, self.draw.random() * weights[-1]) + self.draw.random()

    def write(self, alerts: int) -> None:
        """About so many alerts."""
        rates = []
        for site in self.author.sites:
            for noise in NOISE:
                if self.draw.random() < noise.share:
                    loud = self.draw.lognormvariate(-0.5, 1.2)
                    for role in noise.roles.split():
                        for host in site.hosts.get(role, ()):
                            rates.append((noise.rate * loud * self.draw.lognormvariate(-0.4, 0.9), site, host, noise))
        total = sum(rate for rate, *_ in rates)
        scale = alerts * (1 - SCANNED) / total
        for rate, site, host, noise in rates:
            self._noise(site, host, noise, self.author.poisson(rate * scale))
        self._scanners(round(alerts * SCANNED))

    def _noise(self, site: Site, host: str, noise: Noise, number: int) -> None:
        owner = self.draw.choice(site.people)
        while number > 0:
            when = self.when(site, noise.people)
            together = min(number, 1 + int(self.draw.expovariate(1 / 1.2)) if self.draw.random() < 0.3 else 1)
            number -= together
            names = [self._who(role, site, host, owner) for role in noise.who.split()]
            for _ in range(together):
                self.author.add(when, site, host, noise.title, names)
                when += self.draw.expovariate(20)

    def _who(self, role: str, site: Site, host: str, owner: str) -> Entity:
        draw = self.draw
        match role:
            case "system":
                return "user", "SYSTEM"
            case "root":
                return "user", "root"
            case "person":
                return "user", owner
            case "anybody":
                return "user", draw.choice(site.people)
            case "admin":
                return "user", draw.choice(self.travelling if draw.random() < 0.25 else self.admins[site.number])
            case "service":
                return "user", self.author.account(site, draw.choice(("deploy", "build", "sql", "web", "monitor")))
            case "inner":
                return "ip", self.author.inner(draw.choice(site.every)[1])
            case "home":
                return "ip", draw.choice(self.homes[site.number])
            case "ip":
                return "ip", draw.choice(self.homes[site.number]) if draw.random() < 0.6 else self.author.address()
            case "domain":
                return "domain", self.domains[min(399, int(draw.paretovariate(0.5)) - 1)]
            case "hash":
                return "hash", self.hashes[min(119, int(draw.paretovariate(0.5)) - 1)]
            case _:
                return "device", f"{host}-{draw.randint(1, 6)}"

    def _scanners(self, alerts: int) -> None:
        draw, author, left = self.draw, self.author, alerts
        exposed = [
            (site, role, host)
            for site in author.sites
            for role, host in site.every
            if role in ("gateway", "web", "db", "k8s") or (role in ("linux", "server") and host.endswith("01"))
        ]
        while left > 0:
            address = author.address()
            life = min(author.hours + 400, 24 * draw.paretovariate(0.55) - 23.5)
            begin = draw.uniform(-min(life, author.hours), author.hours)
            begin, end = max(0.0, begin), min(author.hours, begin + life)
            sites = min(author.size.sites, max(1, round(draw.paretovariate(0.7))))
            seen = set(draw.sample(range(author.size.sites), sites))
            liking = set(draw.sample([role for role, *_ in SCANS], 4))
            targets = [(site, role, host) for site, role, host in exposed if site.number in seen and role in liking]
            for _ in range(min(left, 3000, max(1, round((end - begin) / 24 * draw.lognormvariate(1.2, 1.2))))):
                if not targets:
                    break
                site, role, host = draw.choice(targets)
                title = draw.choices(
                    *zip(*[(title, often) for where, title, often in SCANS if where == role], strict=True)
                )[0]
                more = int(draw.paretovariate(1.1)) - 1 if draw.random() < 0.4 else 0
                author.add(draw.uniform(begin, end), site, host, title, [("ip", address)], again=(min(more, 500), 1.0))
                left -= 1 + (more > 0)
