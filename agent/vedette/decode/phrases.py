"""Phrases of the programs of a Linux host: the patterns of their messages, by program. ``servers.py`` has others'.

Each is matched where the message begins; its named groups are fields, cut out as they stand. ``user`` acts (or tries to
log in), ``target_user`` is acted on, ``src_ip``/``src_port`` is the peer, ``command`` what is run.

Every pattern is linear in the message: a run that may be long ends at a literal or is atomic. Where a sender chooses
part of a text (the user name of a failed login), the pattern reads what follows it from the end, so that a crafted
name cannot pose as the peer; where what tells the peer may stand twice, it gives none.
"""

from __future__ import annotations

_IP = r"(?P<src_ip>[0-9A-Fa-f:.%\w-]{1,255})"
_ADDRESS = r"(?P<src_ip>(?=[0-9A-Fa-f]*[.:])[0-9A-Fa-f:.]{2,45}(?<!:))"
_FROM = rf"from {_IP}(?: port (?P<src_port>\d+))?"
_INVALID = r"(?:invalid user |illegal user )?"

_PAM_HEAD = r"pam_\w+\((?P<pam_service>[^:)]*):(?P<pam_type>\w+)\): "
_PAM_FAILURE = (
    # Daemons of FTP, and Dovecot, put into ruser what the client calls itself: the first rhost may be part of it.
    r"(?:PAM )?(?:(?P<failures>\d+) more )?authentication failures?;(?: logname=(?P<logname>\S*))? uid=(?P<uid>\d*)"
    r"(?: euid=(?P<euid>\d*))?(?: tty=(?P<tty>\S*))?"
    r"(?: ruser=(?P<ruser>(?<!(?:ftp|cot) ruser=)(?! rhost=\S* rhost=)|(?>\S*)(?!.* rhost=.* rhost=)))?"
    r" rhost=(?P<rhost>(?P<src_ip>\S+)?)"
    r"(?: +user=(?P<user>\S(?:.*\S)?))?"
)
_BY = r"(?: by (?P<by_user>[^\s(]*)\(uid=(?P<by_uid>\d+)\))?"
PAM_FAILURE = rf"(?:{_PAM_HEAD}|\(?pam_\w+\)?:? )?{_PAM_FAILURE}"
PAM = (
    PAM_FAILURE,
    _PAM_HEAD + r"session (?P<action>opened|closed) for user (?P<user>[^\s(]+)(?:\(uid=(?P<uid>\d+)\))?" + _BY,
    _PAM_HEAD + r"auth could not identify password for \[(?P<user>[^\]]*)\]",
    _PAM_HEAD + r"Consecutive login failures for user (?P<user>\S+) account temporarily locked",
    _PAM_HEAD + r"password changed for (?P<user>\S+)",
    _PAM_HEAD + r"(?P<action>Refused) user (?P<user>.*) for service \S+",
    _PAM_HEAD
    + r"(?P<action>access denied) for user `(?P<user>.*)' from `(?:(?P<src_ip>[\d.]{7,15}|[0-9A-Fa-f:]{3,45})|.*)'$",
    _PAM_HEAD + r'requirement "(?P<reason>.*)" (?P<action>not met|was met) by user "(?P<user>.*)"',
    _PAM_HEAD + r"(?P<action>account|password) (?:expired|has expired) for user (?P<user>\S+)",
    _PAM_HEAD,
    r"session (?P<action>opened|closed) for user (?P<user>\S+)" + _BY,
)
_NOTE = r"(?:kernel:\[ *\d+\.\d+\]: )?(?:error: |fatal: |\[ID \d+ \S+\] )?"
_LOGIN = rf"{_NOTE}(?:Failed|Accepted|Postponed|Partial) (?P<auth_method>[^\s/]++)\S*+"
_TO_PEER = (
    r"(?:Unable to negotiate with|(?:banner exchange|ssh_dispatch_run_fatal): Connection from"
    r"|Timeout, client not responding from|Read error from remote host)"
)
SSHD = (
    # Behind the address the oldest servers have the remote user's name, others a certificate's, which their senders
    # chose: the address is the peer's if no user's name can have brought it.
    rf"{_LOGIN} for {_INVALID}(?P<user>\S*+) {_FROM} ssh\d?: (?:ruser|(?P<key_type>\S+) (?P<key_fingerprint>\S+) ID) "
    r"(?!.* from \S+ port \d)",
    rf"{_LOGIN} for (?!(?>.*? ssh\d?: ).* from ){_INVALID}(?P<user>.*) {_FROM}"
    r"(?: ssh\d?(?:: (?P<key_type>\S+) (?P<key_fingerprint>\S+))?)?",
    rf"{_NOTE}(?:Invalid|Illegal) user (?P<user>.*) {_FROM}",
    # The reason names who the client was and who it wants to be: the peer is read if there is no other port.
    rf"(?!.* port \d.* port \d){_NOTE}Disconnecting(?: (?:authenticating |invalid )?user (?P<user>.*?))? {_ADDRESS} "
    r"port (?P<src_port>\d+): Change of username",
    rf"{_NOTE}Disconnecting .*: Change of username",
    rf"{_NOTE}(?:Connection (?:closed|reset) by|Disconnected from|Disconnecting)"
    rf"(?: (?:authenticating |invalid )?user (?P<user>.*))? {_ADDRESS} port (?P<src_port>\d+)(?=:| \[preauth\]|\s*$)",
    rf"{_NOTE}Connection (?:closed|reset) by {_ADDRESS}",
    rf"{_NOTE}maximum authentication attempts exceeded for {_INVALID}(?P<user>.*) {_FROM}",
    rf"{_NOTE}User (?P<user>.*) from {_IP} not allowed because (?P<reason>.*)",
    rf"{_NOTE}User (?P<user>.*) not allowed because (?P<reason>.*)",
    rf"{_NOTE}Access denied for user (?P<user>.*) by PAM",
    rf"{_NOTE}(?P<user>ROOT) LOGIN REFUSED FROM {_ADDRESS}(?: port (?P<src_port>\d+))?",
    rf"{_NOTE}PAM: (?>(?P<reason>.*?) for ){_INVALID}(?P<user>.*) from {_IP}",
    rf"{_NOTE}{_TO_PEER} {_ADDRESS} port (?P<src_port>\d+)(?:: (?P<reason>.*))?",
    rf"{_NOTE}{_TO_PEER} (?:.* port \d.* port \d|(?:authenticating |invalid )?user (?P<user>.*) {_ADDRESS} "
    r"port (?P<src_port>\d+)(?:: (?P<reason>.*))?)",
    rf"{_NOTE}Bad protocol version identification '(?P<identification>.*)' {_FROM}",
    rf"{_NOTE}kex_exchange_identification: (?P<reason>.*)",
    rf"{_NOTE}(?:(?:Did not receive identification string|Received disconnect|Connection) from|Closing connection to) "
    rf"{_ADDRESS}(?: port (?P<src_port>\d+))?",
    rf"{_NOTE}(?:Starting session: .* for|Close session: user) (?P<user>\S+) {_FROM}",
    rf"{_NOTE}drop connection #\d+ from \[{_ADDRESS}\]:(?P<src_port>\d+)",
    rf"{_NOTE}srclimit_penalise: \S+ (?:new )?{_ADDRESS}/\d+ (?P<reason>.*)",
    rf"{_NOTE}Timeout before authentication for (?:connection from )?{_ADDRESS}(?: port (?P<src_port>\d+))?",
    rf"{_NOTE}refused connect from (?:.*[@ ])?\(?{_ADDRESS}\)?",
    rf"{_NOTE}reverse mapping checking getaddrinfo for (?P<src_host>\S+) \[(?P<src_ip>[^\]]+)\]",
    rf"{_NOTE}Authentication refused: (?P<reason>bad ownership or modes for \w+ (?P<path>.*))",
)

_BY_USER = r"\s*(?P<user>[^\s:][^:]{0,255}?) : {1,2}"
_PART = r"(?:HOST|TTY|CHROOT|[CP]WD|USER|GROUP|TSID|ENV|COMMAND)="
_NEXT = rf"(?: ;(?: (?={_PART})| ?$)|$)"
SUDO_REST = (
    rf"(?:USER=(?>(?P<target_user>.*?){_NEXT}))?"
    rf"(?:GROUP=(?>(?P<target_group>.*?){_NEXT}))?(?:TSID=\S+{_NEXT})?"
    r"(?:ENV=(?>(?P<environment>.*?)(?: ; (?=COMMAND=)|$)))?"
    r"(?:COMMAND=(?P<command>[^ ]*(?: (?!; (?:SIGNAL=\w{1,16}(?: ; EXIT=\d{1,10})?|EXIT=\d{1,10})$)[^ ]*)*)"
    r"(?: ; SIGNAL=(?P<signal>\w+))?(?: ; EXIT=(?P<exit>\d+))?)?"
)
SUDO_CONTINUED = rf"{_BY_USER}\(command continued\) (?P<command>.*)"
"""A piece may hold any text, as it is the user's."""
SUDO = (
    SUDO_CONTINUED,
    # Each part may be missing, also COMMAND, in the first piece of a record that is cut.
    rf"{_BY_USER}(?:(?!{_PART})(?>(?P<reason>.*?) ; (?={_PART})))?(?={_PART})"
    rf"(?:HOST=\S+{_NEXT})?(?:TTY=(?P<tty>\S+){_NEXT})?(?:CHROOT=(?>(?P<chroot>.*?){_NEXT}))?"
    rf"(?:[CP]WD=(?>(?P<pwd>.*?)(?: ; (?=USER=)|$)))?{SUDO_REST}",
    rf"{_BY_USER}(?P<reason>.*)",
    *PAM,
)

PKEXEC = (
    r"(?P<user>[^\s:]+): (?>(?P<reason>.*?) \[USER=)(?P<target_user>[^\]]*)\] \[TTY=(?P<tty>[^\]]*)\] "
    r"\[CWD=(?>(?P<pwd>.*?)\] \[COMMAND=)(?P<command>.*)\]",
    *PAM,
)
DOAS = (
    r"(?P<user>\S+) ran command (?P<command>.*) as (?P<target_user>\S+)(?: from (?P<pwd>.*))?",
    r"(?:failed auth|command not permitted) for (?P<user>\S+)(?:: (?P<command>.*))?",
    *PAM,
)

SU = (
    r"(?P<result>Successful|FAILED|pam_authenticate\S*) su for (?P<target_user>\S+) by (?P<user>\S+)",
    r"(?:(?P<result>FAILED (?:SU|RUNUSER)) )?\(to (?P<target_user>\S+)\) (?P<user>\S+) on (?P<tty>\S+)",
    r"(?P<result>[+-]) (?P<tty>\S+) (?P<user>[^\s:]+)[:-](?P<target_user>\S+)",
    r"'su (?P<target_user>[^']*)' (?P<result>failed|succeeded) for (?P<user>\S+) on (?P<tty>\S+)",
    r"(?:(?P<result>BAD SU) )?(?P<user>\S+) to (?P<target_user>\S+) on (?P<tty>\S+)",
    *PAM,
)

CRON = (
    r"\((?P<user>[^)]{1,256})\) (?P<action>CMD|CMDOUT|CMDEND) \((?P<command>.*(?=\)\s*$)|.*)",
    r"\((?P<user>[^)]{1,256})\) (?P<action>[A-Za-z ]{1,40}) \((?P<detail>.*)\)\s*$",
    r"(?:FILE \S+ )?USER (?P<user>\S+) (?i:pid) +\d+ (?:cmd|job) (?P<command>.*)",
    *PAM,
)

_STAMP = r"(?:\[ *\d+\.\d+\] )?"
KERNEL = (
    _STAMP + r"(?P<process>[^\s\[]{1,64})\[(?P<process_id>\d+)\]:? (?P<fault>segfault|trap \S+|general protection)",
    _STAMP + r"(?:Memory cgroup out|Out) of memory: Kill(?:ed)? process (?P<process_id>\d+) \((?P<process>[^)]*)\)",
    _STAMP + r"device (?P<device>\S+) (?P<action>entered|left) promiscuous mode",
    _STAMP + r"(?P<device>[^\s:]{1,64}): (?P<action>entered|left) promiscuous mode",
    _STAMP + r"(?P<module>[^\s:]{1,64}): (?:loading out-of-tree module taints kernel|module verification failed)",
    _STAMP + r"usb (?P<device>[\d.-]+): (?P<action>New USB device found|USB disconnect)",
    _STAMP + r"\[UFW (?P<action>[A-Z ]{1,32})\] ",
)
NETFILTER = {"SRC": "src_ip", "DST": "dst_ip", "SPT": "src_port", "DPT": "dst_port", "PROTO": "protocol"}

LOGIN = (
    r"(?:FAILED LOGIN (?:SESSION|\(?\d+\)?)|TOO MANY LOGIN TRIES \(\d+\)) ?(?:on '?(?P<tty>[^\s']+)'? )?"
    r"(?:(?i:FROM) '?(?P<src_ip>[^\s']+)'? )?FOR '?(?P<user>[^',]*)'?(?:, (?P<reason>.*))?",
    r"(?P<user>ROOT) LOGIN +(?i:ON '?(?P<tty>[^\s']+)'?(?: FROM '?(?P<src_ip>[^\s']+)'?)?)",
    r"'(?P<user>[^']*)' logged in +on '(?P<tty>[^']*)'(?: from '(?P<src_ip>[^']*)')?",
    r"(?:LOGIN ON|DIALUP AT) (?P<tty>\S+) BY (?P<user>\S+)(?: FROM (?P<src_ip>\S+))?",
    *PAM,
)
LOGIND = (
    r"(?P<action>New|Removed) session '?(?P<session>[^\s']+?)'?(?: of user '?(?P<user>.*?)'?"
    r"(?: with class '(?P<session_class>[^']*)' and type '(?P<session_type>[^']*)')?)?\.?$",
    r"Session '?(?P<session>[^\s']+)'? (?P<action>logged out)\.",
    *PAM,
)

SYSTEMD = (
    r"(?P<action>Start(?:ed|ing)|Stopp(?:ed|ing)|Removed)(?: session-\S+ -)? Session (?P<session>\S+) of [Uu]ser "
    r"(?P<user>.*?)\.?$",
    *PAM,
)
