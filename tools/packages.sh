#!/bin/sh
# The programs that the demo and the tests run against: installs what is missing when it may, else prints the one line.
# With "tests" also those without which tests are skipped; those of the installation only as root, who alone can run them.
set -eu

missing=""
need() { # PROGRAM PACKAGE
    command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] || missing="$missing $2"
}
need mosquitto mosquitto
need mosquitto_sub mosquitto-clients
need rsyslogd rsyslog
need logger bsdutils
need openssl openssl
need ss iproute2
find /usr/lib /usr/lib64 -name lmnsd_ossl.so 2>/dev/null | grep -q . || missing="$missing rsyslog-openssl"
find /usr/lib /usr/lib64 -name omelasticsearch.so 2>/dev/null | grep -q . || missing="$missing rsyslog-elasticsearch"
find /usr/lib /usr/lib64 -name omrelp.so 2>/dev/null | grep -q . || missing="$missing rsyslog-relp"
need java default-jre-headless
if [ "${1:-}" = tests ]; then
    need chromium chromium
    need mvn maven
    need cc gcc
    [ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
    find /usr/lib -name 'libpython3*.so' 2>/dev/null | grep -q . || missing="$missing libpython3-dev"
    need mkfs.ext4 e2fsprogs
    need ip iproute2
    need nft nftables
    need ping iputils-ping
    need patch patch
    need zstd zstd
    need unzip unzip
    find /usr/lib/postgresql -name initdb 2>/dev/null | grep -q . || missing="$missing postgresql"
    need mariadbd mariadb-server
fi
if [ "${1:-}" = tests ] && [ "$(id -u)" = 0 ]; then
    need systemd-nspawn systemd-container
    need debootstrap debootstrap
    need qemu-aarch64-static qemu-user-static
    need systemd-analyze systemd
    need shellcheck shellcheck
    need busybox busybox
    need auditctl auditd
fi
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing$missing"
    # The packages' own services are not wanted: everything here starts its own, on loopback. A host's own policy stays; one
    # with our mark was left by a run that was killed. Not every shell runs the EXIT trap when a signal ends it.
    policy=/usr/sbin/policy-rc.d mark="# of Vedette's tools/packages.sh"
    if [ ! -e $policy ] || grep -qxF "$mark" $policy; then
        trap 'rm -f $policy' EXIT
        trap 'exit 1' HUP INT TERM
        printf '%s\n' '#!/bin/sh' "$mark" 'exit 101' >$policy
        chmod +x $policy
    fi
    apt-get update -qq
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
else
    echo "Missing programs. Run this once, then again what you ran:" >&2
    echo "  sudo apt-get install -y$missing" >&2
    exit 1
fi
