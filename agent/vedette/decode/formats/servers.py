"""Phrases of servers and of programs that speak seldom, as ``phrases.py`` has others': imported with the first message.

A name here is a row's in ``programs.py``, which says what fields its groups give.
"""

from __future__ import annotations

import re

from vedette.decode import access
from vedette.decode.access import CLIENT
from vedette.decode.formats.base import Fields

POLKITD = (
    r"Operator of (?P<session>\S+) (?P<result>successfully authenticated|FAILED to authenticate) "
    r"(?:as unix-user:(?P<target_user>\S+) )?(?>to gain .*?for action )(?P<action>\S++).*\(owned by unix-user:"
    r"(?P<user>[^()]*)\)",
)
ACCOUNTS = (
    r"new user: name=(?P<user>[^,]*), (?i:UID=(?P<uid>\d+), GID=(?P<gid>\d+)), "
    r"home=(?P<home>[^,]*), shell=(?P<shell>[^,\s]*)",
    r"failed adding user '(?P<user>[^']*)'",
    r"(?:new group|group added to \S+): name=(?P<group>[^,\s]*)",
    r"group changed in \S+ \(group (?P<group>[^\s/,)]+)(?:/\d+)?(?:, new (?P<attribute>\w+): (?P<new>[^)]*))?",
    r"(?P<action>add|delete) '(?P<user>[^']*)' (?:to|from) (?:shadow )?group '(?P<group>[^']*)'",
    r"user (?P<user>\S+) (?P<action>added|removed) by (?P<by_user>\S+) (?:to|from) group (?P<group>\S+)",
    r"(?P<by_user>\S+) failed to (?P<action>add|remove) user (?P<user>\S+) (?:to|from) group (?P<group>\S+)",
    r"(?P<attribute>administrators|members|password|access) (?:of|to) group (?P<group>\S+) "
    r"(?P<action>set|removed|changed|restricted) by (?P<by_user>\S+)(?: to (?P<new>\S*))?",
    r"(?P<action>change|lock|unlock) user '(?P<user>[^']*)' (?P<attribute>\w+)"
    r"(?: from '(?P<old>[^']*)' to '(?P<new>[^']*)')?",
    r"(?P<action>change) (?:(?P<attribute>user name|admin) )?'(?P<user>[^']*)' to '(?P<new>[^']*)'"
    r"(?: in (?:shadow )?group '(?P<group>[^']*)')?",
    r"(?P<action>change)d user '(?P<user>[^']*)' (?P<attribute>information|shell)(?: to '(?P<new>[^']*)')?",
    r"(?P<action>change)d (?P<attribute>password expiry) for (?P<user>\S+)",
    r"(?P<action>delete) user '(?P<user>[^']*)'",
    r"(?P<action>delete|remove)d? (?:shadow )?group '(?P<group>[^']*)'(?: owned by '(?P<user>[^']*)')?",
    r"change group '(?P<group>[^']*)'",
    r"group '(?P<group>[^']*)' (?P<action>removed)",
    r"password for '?(?P<user>[^\s']+)'? changed by '?(?P<by_user>[^\s']+)'?",
    r"user '(?P<user>[^']*)' \(login '[^']*' on (?P<tty>[^)]*)\) (?P<action>switched|returned) to "
    r"group '(?P<group>[^']*)'",
    r"(?P<reason>Invalid password) for group '(?P<group>[^']*)' from '(?P<user>[^']*)'",
)

_TIME = r"(?:\d{10}: )?"
_DENIED = r" \(d\d, q\d, r\d, m\d+, '"
MOSQUITTO = (
    _TIME + r"New client connected from (?P<src_ip>\S+):(?P<src_port>\d+) as "
    r"(?>(?P<client_id>.*) \(p)\d, c\d, k\d+(?:, u'(?P<user>.*)')?\)",
    _TIME + r"New connection from (?P<src_ip>\S+):(?P<src_port>\d+) on port (?P<dst_port>\d+)",
    rf"{_TIME}Denied (?P<action>PUBLISH|SUBSCRIBE) from "
    rf"(?:(?>(?P<client_id>.*?){_DENIED})(?!.*{_DENIED})(?P<topic>.*)',)?",
    _TIME + r"Client (?!(?>.*? disconnected).* disconnected)"
    r"(?>(?P<client_id>.*?)(?: \[(?P<src_ip>[^\]\s]+):(?P<src_port>\d+)\])? disconnected)(?:, (?P<reason>.*))?",
    _TIME + r"(?:Socket error on client|Bad socket read/write on client) (?P<client_id>[^\s,:]+)",
    _TIME + r"Client (?P<client_id>.*) "
    r"(?:already connected, closing old connection|closed its connection|has exceeded timeout)",
)
DNSMASQ = (r"(?:\d+ \S+ )?(?:query|auth)\[(?P<record_type>[^\]]+)\] (?P<query>.*) from (?P<src_ip>\S+)",)
PDNS = (
    r"(?:TCP )?Remote (?:\S+<-)?(?P<src_ip>[0-9A-Fa-f:.]{2,45}) wants '(?P<query>.*)\|(?P<record_type>[^|']*)', do",
    r"(?:\d+ )?\[[\d/]+\] (?:TCP )?question for '(?P<query>.*)\|(?P<record_type>[^|']*)' from "
    r"\[?(?P<src_ip>[0-9A-Fa-f:.]{2,45}?)(?:\]?:\d+)?(?= |$)",
)
UNBOUND = (
    r"(?:\[[\d:]+\] )?info: (?:(?:query|reply): |\S+ \w+ )?(?P<src_ip>[0-9A-Fa-f:.]{2,45})(?:@\d+)? "
    r"(?P<query>\S+?)\.? (?P<record_type>\S+) (?:IN|CH|HS|ANY|CLASS\d+)(?= |$)",
)
NGINX = (r"(?:[\d/]{10} [\d:]{8} )?\[(?P<level>\w+)\] \d+#\d+: (?>.*?, client: )(?P<src_ip>[^,\s]++)(?!.*, client: )",)
APACHE = (rf"(?>.*?\[(?:client|remote) ){CLIENT}\]",)
NAMED = (
    r"(?:[\w-]{1,32}: )?(?:\w{1,16}: )?client (?:@\S+ )?(?P<src_ip>[^\s#]+)#(?P<src_port>\d+)"
    r"(?: \((?P<query>(?:[^)\\]|\\.)*+)\))?: (?:view \S+: )?(?:query: \S+ \S+ (?P<record_type>\S+))?",
)
_DROPBEAR_PEER = r"from <?\[?(?P<src_ip>[0-9A-Fa-f.:]{2,45})\]?:(?P<src_port>\d{1,5})"
DROPBEAR = (
    rf"Exit before auth {_DROPBEAR_PEER}>: (?:\(user '(?P<user>.*)', \d+ fails\): )?(?P<reason>.*)",
    rf"(?P<reason>[Ll]ogin attempt (?:for nonexistent|with wrong|for disallowed) user)(?: '?(?P<user>.*?)'?)? "
    rf"{_DROPBEAR_PEER}\s*$",
    rf"(?:[Bb]ad (?:PAM )?password attempt|(?:PAM )?[Pp]assword auth succeeded) for '(?P<user>.*)' {_DROPBEAR_PEER}",
    rf"Pubkey auth succeeded for '(?P<user>.*)' with (?P<key_type>\S+) key (?P<key_fingerprint>\S+) {_DROPBEAR_PEER}",
    rf"(?:Child connection|Exit \((?P<user>.*)\)) {_DROPBEAR_PEER}",
)

SENDMAIL = (
    r"\w{6,20}: to=(?>.*?relay=)[^\s,\[]{0,255} ?\[(?:IPv6:)?(?P<dst_ip>[0-9A-Fa-f.:]{2,45})\](?!.*relay=)",
    r"\w{6,20}: to=",
    r"(?>.*?relay=)(?P<src_host>[^\s,\[]{0,255}) ?\[(?:IPv6:)?(?P<src_ip>[0-9A-Fa-f.:]{2,45})\](?!.*relay=)",
    r"(?>.*?relay=)",
    r"(?>[^\[<@]{0,512})\[(?:IPv6:)?(?P<src_ip>[0-9A-Fa-f.:]{2,45})\]",
)
COURIER = (
    r"LOGIN FAILED, (?:method=\S+, )?user=(?P<user>.*), ip=\[(?P<src_ip>[0-9A-Fa-f.:]{2,45})\]",
    r"error,relay=(?P<src_ip>[0-9A-Fa-f.:]{2,45}),",
)
_FAILED = r"(?:[Ii]nvalid|[Nn]on-existent|[Ff]ailed) login (?:as|for) (?P<user>.*) from (?P<src_ip>[0-9A-Fa-f.:]{2,45})"
WEBMIN = (_FAILED,)
_CUBE = r"[0-9A-Fa-f:.]{2,45}(?<!\.)"
_CUBE_END = r"(?=\(X-|\. [A-Z]| in session|\s*$)"
ROUNDCUBE = (
    r"(?:<\w+> )?(?:IMAP Error: )?(?:Login failed|Failed login|FAILED login) for "
    rf"(?>(?P<user>.*?) from (?P<src_ip>{_CUBE}){_CUBE_END})(?!.* from {_CUBE}{_CUBE_END})",
)
HAPROXY = (r"(?P<src_ip>[0-9A-Fa-f.:]{2,45}):(?P<src_port>\d{1,5}) \[",)
SLAPD = (r"conn=\d+ fd=\d+ ACCEPT from IP=(?P<src_ip>[0-9.]{7,15}|\[[0-9A-Fa-f:]{2,45}\]):(?P<src_port>\d{1,5})",)
SUHOSIN = (r"ALERT - (?P<reason>.*) \(attacker '(?P<src_ip>[^']{2,45})'",)
CYRUS = (
    r"(?:badlogin|login): (?P<src_host>[^\s\[]{0,255}) ?\[(?P<src_ip>[0-9A-Fa-f.:]{2,45})\] (?P<auth_method>\S{1,32})",
)
DANTE = (r"info: \w+\(\d+\): tcp/accept \]: (?P<src_ip>\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})\.(?P<src_port>\d{1,5}) ",)

VSFTPD = (
    r"(?!.*: Client \".*: Client \")(?:\[pid \d+\] )?\[(?P<user>.*?)\] (?P<result>OK|FAIL) (?P<action>[A-Z ]+): "
    r"Client \"(?P<src_ip>[^\"]*)\"(?:, \"(?P<path>.*?)\"(?=,|$))?",
    r"(?!.*: Client \".*: Client \")(?:\[pid \d+\] )?(?:\[(?P<user>.*?)\] )?FTP (?:response|command): "
    r"Client \"(?P<src_ip>[^\"]*)\", \"(?P<command>.*)\"",
    r"(?:\[pid \d+\] )?CONNECT: Client \"(?P<src_ip>[^\"]*)\"",
)
_FTP_PEER = r"(?:\S{1,255} proftpd\[\d{1,10}\] )?\S{1,255} \([^\[()]{0,255}\[(?P<src_ip>[0-9A-Fa-f.:]{2,45})\]\)"
PROFTPD = (
    _FTP_PEER + r"(?: -|:) USER (?P<user>.*?)(?: \(Login failed\)|: no such user found|: Login successful)",
    _FTP_PEER + r"(?: -|:) (?P<reason>SECURITY VIOLATION|Maximum login attempts)",
    _FTP_PEER,
)

_V = r"[0-9A-Fa-f.:]{2,45}"
_MX = rf"(?P<src_host>[^\s\[]{{1,255}})?\[(?P<src_ip>{_V})\](?::(?P<src_port>\d{{1,5}}))?"
_MX_END = rf" from \S{{0,255}}\[{_V}\]; from=<"
_MAIL = (
    r"warning: hostname (?P<src_host>\S{1,255}) does not resolve to address (?P<src_ip>[0-9A-Fa-f.:]{2,45}?)(?:: |$)",
    r"warning: (?P<src_ip>[0-9A-Fa-f.:]{2,45}): (?:hostname (?P<src_host>\S{1,255}) |address not listed)",
    rf"(?:NOQUEUE|\w{{5,20}}): (?P<action>[a-z_-]{{3,16}}): \S{{1,64}} from {_MX}: (?P<reason>.*?)(?:; from=<|$)",
)
POSTFIX = (
    *_MAIL,
    rf"warning: {_MX}: SASL (?P<auth_method>\S{{1,64}}) authentication failed(?:: (?P<reason>.*?))?"
    r"(?:, sasl_username=(?:\(unavailable\)|(?P<user>.*)))?$",
    rf"\w{{5,20}}: client={_MX}(?:, sasl_method=(?P<auth_method>[^\s,]{{1,64}}))?"
    r"(?:, sasl_username=(?P<user>.*?))?(?:, sasl_sender=.*)?$",
    rf"(?:warning: |[A-Z ]{{3,24}} )?(?:[^\[\]<>\"']{{0,80}}? (?:from|for) )?{_MX}",
)
POSTFIX_PARTS = (
    *_MAIL,
    # What a header has stands before the peer.
    rf"\w{{5,20}}: (?P<action>[a-z-]{{3,16}}): (?!(?>.*?{_MX_END}).*{_MX_END})(?>.*? from {_MX}; from=<)",
    rf"\w{{5,20}}: to=<(?>.*?, relay=)(?P<dst_host>[^\s,\[]{{1,255}})\[(?P<dst_ip>{_V})\]:(?P<dst_port>\d{{1,5}}),"
    r"(?!.*, relay=)",
    rf"connect to (?P<dst_host>[^\s\[]{{1,255}})\[(?P<dst_ip>{_V})\]:(?P<dst_port>\d{{1,5}}): (?P<reason>.*)",
    rf"CONNECT from {_MX}",
)
_WHOSE = rf",{_V}(?:,<[^)>]{{0,64}}>)?\)"
DOVECOT = (
    # From the end: whom a client calls itself may hold all that stands before
    r"[a-z\d]{1,16}-login: (?:Info: )?(?P<action>Logged in|Login aborted|Login|Aborted login|Disconnected)?"
    r"(?>: user=<|(?:: | (?=\())?(?P<reason>.+?): user=<)(?P<user>.*)>, (?:method=(?P<auth_method>[^\s,]{1,64}), )?"
    rf"rip=(?P<src_ip>{_V}), lip=(?P<dst_ip>{_V})(?=,|$)",
    # DATABASE(USER,IP[,<SESSION>]) or MECHANISM(…): behind the names of processes
    r"(?:(?:conn |Info|Error|Warning|[a-z](?:[\w-]|:(?=\w)){0,32})(?: ?\([^()]{0,128}\))?(?:<[^>]{0,64}>)?"
    r"(?:: | )){0,6}"
    rf"[a-z][\w-]{{0,32}}\((?:(?>.*?{_WHOSE}).*{_WHOSE}:|(?:\?|(?P<user>[^,()]{{1,256}})),(?P<src_ip>{_V})"
    r"(?:,[^)]{0,128})?\)(?:: (?P<reason>.*))?)",
    r"(?:imap|pop3|lmtp|lda|sieve|managesieve|submission)\((?P<user>[^()\s]{1,256})\)(?:<[^>]{0,64}>){0,2}: ",
)
_EXIM = (
    r"(?:\[1[\\/]\d{1,3}\] )?(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?(?: [+-]\d{4})? )?(?:\[\d{1,10}\] )?"
    r"[\w-]{6,40} "
)
_EXIM_TO = rf"(?P<dst_host>[^\s(\[]{{1,255}}) \[(?P<dst_ip>{_V})\](?::(?P<dst_port>\d{{1,5}}))?"
EXIM = (
    r"\[(?!1[\\/])\d{1,3}[\\/]\d{1,3}\] ",  # what goes on from another message may begin with any words
    rf"{_EXIM}<= \S{{1,512}} U=(?P<user>\S{{1,256}}) P=local",
    # Whom it delivers to
    rf"{_EXIM}[-=*>][>=*] (?:(?>.*? H=){_EXIM_TO}(?!.* H=))?",
    rf"{_EXIM}H={_EXIM_TO}:? [A-Z][A-Za-z]* [a-z]",
    rf"{_EXIM}<= \S{{1,512}} H=(?:[^\s(\[]{{1,255}} )?(?:\([^\s()]{{0,255}}\) )?\[(?P<src_ip>{_V})\]"
    r"(?::(?P<src_port>\d{1,5}))?"
    r"(?: (?!A=|SNI=)[A-Z0-9]{1,6}=\S{1,255}){0,16}(?: A=(?P<auth_method>[^\s:]{1,64}):(?P<user>\S{1,256}))?",
)
SAMBA = (
    r"\s{0,8}Auth: \[(?P<service>[^\]]{1,64})\] user \[(?P<domain>[^\]]{1,256})?\]\\\[(?P<user>[^\]]{1,256})?\] at "
    r"\[[^\]]{1,64}\] with \[(?P<auth_method>[^\]]{1,64})\] status \[(?P<status>\w{1,64})\] workstation "
    rf"\[(?P<workstation>[^\]]{{1,256}})?\] remote host \[ipv[46]:(?P<src_ip>{_V}):(?P<src_port>\d{{1,5}})\]"
    r"(?!.* remote host \[)",
    # full_audit, with the prefix that it has by default, perhaps with the share
    rf"(?P<user>[^|\s]{{1,256}})\|(?P<src_ip>{_V})\|(?:[^|]{{1,128}}\|)?(?P<action>[a-z_]{{2,32}})\|"
    r"(?P<result>ok|fail(?= |\|))[^|]{0,256}\|(?:[rw]\|)?(?P<path>.*)",
)
FAIL2BAN = (
    r"(?:fail2ban\.\S+ +(?:\[\d+\])?: )?(?:[A-Z]{4,8} +)?\[(?P<jail>[^\]]{1,64})\] "
    r"(?P<action>Ban|Unban|Found|Ignore|(?:Restore|Increase) Ban) (?P<src_ip>\S{2,45})",
)
_OVPN = r"(?:us=\d{1,6} )?(?:TLS: )?"
_OVPN_PEER = r"(?P<src_ip>[0-9.]{7,15}|\[[0-9A-Fa-f:]{2,45}\]):(?P<src_port>\d{1,5})"
OPENVPN = (
    rf"{_OVPN}{_OVPN_PEER} TLS: Username/Password authentication (?P<result>\w{{1,16}}) for username '(?P<user>.*)'",
    rf"{_OVPN}{_OVPN_PEER} \[(?P<user>[^\]]{{1,255}})\] Peer Connection Initiated with ",
    rf"{_OVPN}{_OVPN_PEER} (?P<reason>(?:TLS Auth|VERIFY|TLS) E(?:rror|RROR): .*)?",
    rf"{_OVPN}(?P<user>[^/\s]{{1,255}})/{_OVPN_PEER} ",
    rf"{_OVPN}TCP connection established with \[AF_INET6?\]{_OVPN_PEER}",
    rf"{_OVPN}MANAGEMENT: CMD '(?P<command>.*)'",
)

_PG_PREFIX = r"(?:(?:\d{4}-\d\d-\d\d [\d:.]{8,15} )?[A-Z+-][A-Z\d]{1,7} )?+(?:\[\d{1,10}\](?:: \[\d{1,10}-\d\])? )?+"
_PG = rf"(?:\[\d{{1,10}}-1\] |(?!\[\d{{1,10}}-))(?!\t|#011){_PG_PREFIX}"
"""Of a message's first part: the others may begin with any words of a statement."""
_PG_USER = r"(?:\[unknown\]|(?P<user>.{1,63}?))@(?:\[unknown\]|(?P<database>.{1,63}?)) "
_PG_PEER = rf"host=(?:\[local\]|(?P<src_ip>{_V}|(?P<src_host>\S{{1,255}})))(?: port=(?P<src_port>\d{{1,5}}))?"
_PG_HBA = (
    r"FATAL:  (?P<reason>no pg_hba.conf entry|pg_hba.conf rejects connection) for (?:replication connection from )?"
    rf'host "(?P<src_ip>{_V})", user "'
)
POSTGRES = (
    # What stands before the level has the user's name (of at most 63 bytes): it must be that which the message has.
    rf'{_PG}{_PG_USER}FATAL:  (?P<reason>[^":]{{1,64}} authentication failed) for user "(?P=user)"$',
    rf'{_PG}{_PG_USER}{_PG_HBA}(?P=user)"(?:, database "(?P=database)")?, (?:\w{{2,16}} encryption)$',
    rf"{_PG}{_PG_USER}LOG:  (?P<action>disconnection): session time: [\d:.]{{1,32}} user=(?P=user) "
    rf"database=(?P=database) {_PG_PEER}$",
    rf"{_PG}{_PG_USER}LOG:  connection (?P<action>authorized): (?:replication )?user=(?P=user) ",
    rf'{_PG}{_PG_USER}LOG:  connection (?P<action>authenticated): identity="(?P<identity>.*)" '
    r"method=(?P<auth_method>[\w-]{1,32}) \(",
    rf"{_PG}(?:\[unknown\]@\[unknown\] )?LOG:  (?P<action>connection received): {_PG_PEER}$",
    rf'{_PG}FATAL:  (?P<reason>[^":]{{1,64}} authentication failed) for user "(?P<user>.*)"$',
    rf'{_PG}{_PG_HBA}(?P<user>[^"]{{0,63}})"(?:, database "(?P<database>[^"]{{0,63}})")?, \w{{2,16}} encryption$',
    rf'{_PG}LOG:  parameter "(?P<parameter>[\w.]{{1,128}})" (?P<action>changed) to "(?P<new>.*)"$',
    rf"{_PG}(?:{_PG_USER})?LOG:  (?:duration: [\d.]{{1,16}} ms  )?"
    r"(?:statement|execute [^:]{1,128}): (?P<statement>.*)",
    rf"(?:\[\d{{1,10}}-\d{{1,10}}\] )?{_PG_PREFIX}(?:.{{1,63}}?@.{{1,63}}? )?STATEMENT:  (?P<statement>.*)",
    rf"{_PG}(?:{_PG_USER})?(?:(?P<level>ERROR|FATAL|PANIC|WARNING):  (?P<reason>.*)|[A-Z]{{3,10}}\d?:  )",
)
_MY = r"(?:(?:\d{4}-\d\d-\d\d[ T] ?[\d:.]{7,15}Z? )?\d{1,20} \[\w{1,16}\] (?:\[MY-\d{1,8}\] \[\w{1,16}\] )?)?"
_MY_PEER = rf"(?:(?P<src_ip>(?=[\d.]{{7}}|[0-9A-Fa-f]{{0,4}}:){_V})|(?P<src_host>[^',]{{0,255}}))"
_AUDITED = r",\d{1,20},\d{1,20},[A-Z_]{4,32},"
MYSQL = (
    rf"{_MY}(?P<reason>Access denied) for user '(?!.*' to database ')(?P<user>.*)'@'{_MY_PEER}'"
    r"(?: \(using password: \w{2,3}\))?$",
    rf"{_MY}(?P<reason>Access denied) for user '(?P<user>.*)'@'{_MY_PEER}' \(using password: \w{{2,3}}\)$",
    rf"{_MY}(?P<reason>Aborted connection) \d{{1,20}} to db: '(?P<database>.*)' user: "
    rf"'(?:unauthenticated|(?P<user>.{{0,128}}?))' host: '{_MY_PEER}' \([^()]{{0,256}}\)$",
    # The audit plugin: of a connection the client chose user and database
    rf" ?[^,]{{1,255}},(?!.*{_AUDITED}.*{_AUDITED})(?P<user>.+)?,{_MY_PEER},\d{{1,20}},\d{{1,20}},"
    r"(?P<action>(?:FAILED_|DIS)?CONNECT),(?P<database>.+)?,,(?P<result>\d{1,10})$",
    rf" ?[^,]{{1,255}},(?P<user>[^,]{{1,128}})?,{_MY_PEER},\d{{1,20}},\d{{1,20}},(?P<action>[A-Z]{{4,32}}),"
    r"(?P<database>[^,]{1,256})?,'(?P<statement>.*)',(?P<result>\d{1,10})$",
    rf" ?[^,]{{1,255}},(?P<user>[^,]{{1,128}})?,{_MY_PEER},\d{{1,20}},\d{{1,20}},(?P<action>[A-Z]{{4,32}}),"
    r"(?P<database>[^,]{1,256})?,(?P<table>.*),$",
)
_REDIS = rf"(?P<src_ip>\d[\d.]{{6,14}}|\[?{_V}\]?):(?P<src_port>\d{{1,5}})"
_REDIS_HEAD = r"(?:\d{1,10}:[CMSX] \d\d [A-Z][a-z]{2} \d{4} [\d:.]{8,15} )?(?:[.*#-] )?"
REDIS = (
    rf"{_REDIS_HEAD}Accepted {_REDIS}$",
    rf"{_REDIS_HEAD}(?:(?P<action>REPLICAOF|MASTER MODE enabled) )?(?!(?>.*? addr=).* addr=)"
    rf"(?>.*?\bid=\d{{1,20}} addr=){_REDIS} ",
    rf"{_REDIS_HEAD}Possible SECURITY ATTACK detected\..* Connection (?:from {_REDIS} )?aborted\.",
)
IDS = (
    r"\[\d{1,10}:(?P<signature_id>\d{1,10}):\d{1,10}\] (?P<signature>.{1,512}?) (?:\[\*\*\] )?(?:\[Classification: "
    rf"(?P<classification>[^\]]{{0,256}})\] )?\[Priority: (?P<level>\d{{1,3}})\]:? \{{(?P<protocol>[\w-]{{1,32}})\}} "
    rf"(?P<src_ip>{_V}?)(?::(?P<src_port>\d{{1,5}}))? -> (?P<dst_ip>{_V}?)(?::(?P<dst_port>\d{{1,5}}))?$",
)


def phrases(name: str) -> tuple[str, ...]:
    """The patterns of this name."""
    patterns: tuple[str, ...] = globals()[name]
    return patterns


_SQUID = re.compile(
    rf"(?:\d{{10}}\.\d{{3}})? {{0,16}}\d{{1,10}} (?P<client>{_V}) (?P<action>[A-Z_]{{3,32}})/(?P<status>\d{{3}}) "
    r"(?P<bytes>\d{1,20}) (?P<request>\S+ \S+) (?P<user>.*) [A-Z_]{3,64}/\S* \S+$",
    re.S,
)


def squid(message: str) -> Fields:
    """The fields of a line of squid's own access log; none of any other."""
    match = _SQUID.match(message)
    if match is None:
        return {}
    parts = match.groupdict()
    request = parts.pop("request")
    fields: Fields = {"action": parts.pop("action"), **access.as_fields(parts), **access.request_fields(request)}
    return {**fields, "c-uri": fields["cs-uri"]} if "cs-uri" in fields else fields
