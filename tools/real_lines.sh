#!/bin/sh
# Make, in a Debian 12 of its own, the lines that its programs really write: sh tools/real_lines.sh [FOLDER]. As root. Only
# debootstrap and apt reach a network (the package mirror); the programs run in namespaces of their own, with a loopback
# alone. Lines are left in FOLDER, build/real_lines: syslog.log as written to /dev/log, and each server's log. What they
# mean is checked by hand and kept in tests/decode/real_lines.jsonl.
set -eu
if [ "${1:-}" != inside ]; then
    cd "$(dirname "$0")/.."
    out=${1:-$PWD/build/real_lines} root=$PWD/build/bare/programs
    [ "$(id -u)" = 0 ] || { echo "namespaces and a Debian need root: sudo sh tools/real_lines.sh" >&2; exit 1; }
    mirror() {
        cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -v '^#' | grep -oE "https?://[^ ]*/$1/?( |\$)" |
            head -n 1
    }
    if [ ! -d "$root" ]; then
        rm -rf --one-file-system "$root.new"
        mkdir -p "$root.new"
        # shellcheck disable=SC2046 # no word where the host names no mirror
        debootstrap --variant=minbase --include=ca-certificates bookworm "$root.new" $(mirror debian) >/dev/null
        security=$(mirror debian-security)
        [ -z "$security" ] || echo "deb $security bookworm-security main" >>"$root.new/etc/apt/sources.list"
        echo 'exit 101' >"$root.new/usr/sbin/policy-rc.d"
        chmod 755 "$root.new/usr/sbin/policy-rc.d"
        cp /etc/resolv.conf "$root.new/etc/resolv.conf"
        # proftpd and exim will not be installed beside vsftpd and postfix: of them the files alone
        unshare --mount --fork chroot "$root.new" sh -ec "mount -t proc proc /proc
            export DEBIAN_FRONTEND=noninteractive
            apt-get update -qq
            apt-get install -qq -y --no-install-recommends python3 sudo openssh-server openssh-client cron bsdutils iproute2 \
                nginx-light apache2 dnsmasq-base unbound bind9 bind9-dnsutils curl openssl login dovecot-imapd dovecot-pop3d \
                postfix samba samba-vfs-modules smbclient vsftpd openvpn haproxy squid postgresql mariadb-server \
                redis-server fail2ban chrony procps libidn12 libgnutls-dane0 libhiredis0.14 libmemcachedutil2 libsodium23 \
                libpcre2-posix3
            cd /tmp
            apt-get download -q exim4-daemon-light proftpd-core
            for package in exim4-daemon-light proftpd-core; do dpkg -x \$package*.deb /aside; done
            cp -a /aside/usr/sbin/proftpd /usr/sbin/
            cp -a /aside/usr/lib/proftpd /usr/lib/" >/dev/null
        mv "$root.new" "$root"
    fi
    mkdir -p "$out"
    cp "$0" tools/real_servers.py tools/real_servers.toml "$root"
    unshare --mount --pid --net --uts --ipc --fork --kill-child chroot "$root" /bin/sh /real_lines.sh inside
    cp "$root"/lines/*.log "$out"
    exec wc -l "$out"/*.log
fi

mount -t proc proc /proc
mount -t tmpfs -o mode=755 dev /dev
mkdir /dev/pts
mount -t devpts -o newinstance,ptmxmode=666 devpts /dev/pts
ln -s pts/ptmx /dev/ptmx
mkdir -m 1777 /dev/shm
for node in null:3 zero:5 random:8 urandom:9; do mknod -m 666 "/dev/${node%:*}" c 1 "${node#*:}"; done
mknod -m 666 /dev/tty c 5 0
hostname localhost
ip link set lo up
ip address add 192.0.2.1 dev lo # the servers of real_servers.toml; who calls them does so from:
ip address add 198.51.100.7 dev lo
ip route replace table local local 192.0.2.1 dev lo src 198.51.100.7
rm -rf /lines
mkdir -m 777 /lines
cat >/collect.py <<'END'
import os, socket
log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
log.bind("/dev/log")
os.chmod("/dev/log", 0o666)
with open("/lines/syslog.log", "wb", 0) as lines:
    while True:
        lines.write(log.recv(65536).rstrip(b"\n\0") + b"\n")
END
cat >/ask.py <<'END'
import socket, sys
for text in sys.argv[2:]:
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5) as server:
        server.settimeout(1)
        server.sendall(text.encode().decode("unicode_escape").encode("latin-1"))
        try:
            while server.recv(65536):
                pass
        except OSError:
            pass
END
python3 /collect.py &
until [ -S /dev/log ]; do sleep 0.1; done
try() { "$@" >/dev/null 2>&1 </dev/null || true; }

# --- accounts
for user in kim lee bob toor; do try userdel -rf $user; done
while read -r line; do
    # shellcheck disable=SC2086 # words
    try $line
done <<'END'
useradd -m -s /bin/sh -G sudo kim
useradd -r -M lee
useradd -o -u 0 toor
useradd kim
usermod -aG adm kim
usermod -s /bin/bash -d /home/k kim
usermod -u 4321 -e 2027-01-01 lee
usermod -l bob lee
groupadd ops
groupmod -n dev ops
groupmod -g 5005 dev
gpasswd -a kim dev
gpasswd -A kim dev
gpasswd -M kim,bob dev
gpasswd -d kim dev
gpasswd -r dev
gpasswd -R dev
chage -M 30 kim
passwd -d bob
chfn -f Kim kim
chsh -s /bin/sh kim
groupdel dev
userdel -f toor
END
echo kim:secret | chpasswd

# --- sudo, su, cron
printf '%s\n' 'kim ALL=(ALL:ALL) NOPASSWD:SETENV: /bin/sh, /usr/bin/id, /usr/bin/echo' 'kim ALL=PASSWD: /usr/bin/who' >/etc/sudoers
as_kim() { try runuser -u kim -- sh -c "cd /tmp; $1"; }
for command in 'sudo id' 'sudo -u nobody -g adm id' 'sudo A=b sh -c "id; echo a b"' 'sudo -R / id' 'sudo -D /etc id' \
    'sudo -n who' 'sudo cat /etc/shadow' 'echo wrong | sudo -S who' 'sudo -u nosuch id' 'script -qc "sudo id" /dev/null' \
    "sudo echo $(printf '%0999d /etc/shadow' 1)" 'echo wrong | su root' 'crontab -l'; do
    as_kim "$command"
done
echo 'Defaults log_host, log_exit_status' >>/etc/sudoers
as_kim 'sudo sh -c "exit 3"; sudo sh -c "kill -9 \$\$"'
try su - kim -c id
rm -f /run/crond.reboot /run/crond.pid
echo '@reboot echo "a (b) c"' | crontab -u kim -
cron

# --- sshd
mkdir -p /run/sshd
printf "#!/bin/sh\necho \$PASSWORD\n" >/askpass
chmod 755 /askpass
/usr/sbin/sshd -p 2222 -o MaxAuthTries=2 -o DenyUsers=daemon
for login in kim:wrong kim:secret nosuch:x daemon:x root:x 'a from 192.0.2.9 port 1:x'; do
    try env SSH_ASKPASS=/askpass SSH_ASKPASS_REQUIRE=force PASSWORD="${login#*:}" ssh -p 2222 -l "${login%:*}" \
        -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null 127.0.0.1 true
done
try ssh -p 2222 -o KexAlgorithms=diffie-hellman-group1-sha1 kim@127.0.0.1 true
try python3 /ask.py 2222 'GET / HTTP/1.0\r\n\r\n' '' 'SSH-2.0-x\r\n'

# --- web
mkdir -p /var/www/html
echo secret >/var/www/html/.env
echo 'pid /run/n.pid; events {} http { access_log /lines/nginx.log combined; error_log /lines/nginx_error.log;
    server { listen 127.0.0.1:8080; root /var/www/html; } }' >/n.conf
nginx -c /n.conf
echo 'Listen 127.0.0.1:8081' >/etc/apache2/ports.conf
sed -i 's#^<VirtualHost.*#<VirtualHost *:8081>#; s#CustomLog .*#CustomLog /lines/apache.log combined#;
    s#ErrorLog .*#ErrorLog /lines/apache_error.log#' /etc/apache2/sites-available/000-default.conf
try apachectl start
for port in 8080 8081; do
    try python3 /ask.py $port 'GET /.env HTTP/1.0\r\n\r\n' 'GET /.env\r\n' 'GET /.env HTTP/1.0 \r\n\r\n' 'GET\r\n\r\n' '\r\n\r\n' \
        'GET   /.env   HTTP/1.0\r\n\r\n' '\x16\x03\x01\x00\xa5\x01' 'GET http://h/.env HTTP/1.0\r\n\r\n' 'GET /.env#a HTTP/1.0\r\n\r\n' \
        'GET /a b HTTP/1.0\r\n\r\n' 'OPTIONS * HTTP/1.0\r\n\r\n' 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' 'FOO_BAR /.env HTTP/1.0\r\n\r\n' \
        'GET /.env HTTP/1.0\r\nAuthorization: Basic YSBbYjp4\r\nUser-Agent: a "b" \\\\c \xe4\r\n\r\n' 'GET /x,%20client:%20a HTTP/1.0\r\n\r\n'
done

# --- names
dnsmasq -C /dev/null -p 5301 --log-queries=extra --no-resolv --address=/e.example/192.0.2.7 --pid-file=/d.pid
printf 'server:\n port: 5302\n log-queries: yes\n use-syslog: yes\n chroot: ""\n local-zone: e.example static\n' >/u.conf
unbound -p -c /u.conf >/dev/null 2>&1
echo 'options { listen-on port 5303 { 127.0.0.1; }; listen-on-v6 { none; }; recursion no; dnssec-validation no; querylog yes; pid-file none; };' >/b.conf
try named -c /b.conf
for port in 5301 5302 5303; do
    for type in A TYPE65 TYPE1234; do try dig +tries=2 +time=1 -p $port @127.0.0.1 e.example $type; done
done

# --- servers
try usermod -s /bin/sh -d /home/kim kim
python3 /real_servers.py
sleep 2 # until all is written; what runs ends with this shell, the first process of its namespace
