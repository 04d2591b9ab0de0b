#!/bin/sh
# Installs, upgrades and removes the Vedette agent. Downloads nothing, asks nothing, needs no Python on the host.
#
#   unzip vedette-0.1.0-linux-x86_64.zip && sudo sh vedette-0.1.0/install.sh
#
# Under the prefix lie releases/VERSION-DIGEST, each whole, and the links `current` and `previous`; `current` moves, by
# an atomic rename, only to a release that was checked against SHA256SUMS and has run on this host. Run again, it
# changes nothing that is as it should be. An agent that does not come up is put back to the release it had.
#
# Exit codes: 0 done, 1 failed, 2 wrong use, 3 the host does not fit, 4 the archive is damaged, 5 the release does not run
# on this host or takes not its configuration, 6 the agent did not come up under systemd.

set -eu

usage() {
    cat <<'END'
usage: sh install.sh [OPTION...]

  --region URL        send alerts to this broker: mqtt://HOST[:PORT] or mqtts://HOST[:PORT] (default: a local folder)
  --prefix DIR        program, default /opt/vedette
  --config-dir DIR    vedette.toml, default /etc/vedette
  --data-dir DIR      raw logs, outbox and bundles, default /var/lib/vedette
  --no-systemd        install no unit and no user: for containers and tests; then root is not needed
  --no-start          install the unit, but do not start it
  --uninstall         remove program, unit and command; configuration and data stay
  --purge             with --uninstall: remove configuration, data and user, too
  --dry-run           say what would be done, and do nothing
  --help              this text

An existing vedette.toml is never changed: this release's is written beside it as vedette.toml.new when it differs.
Directories given once are remembered for the next run with the same prefix.
END
}

say() { printf '%s\n' "vedette: $*"; }
warn() { printf '%s\n' "vedette: warning: $*" >&2; }
die() {
    code=$1
    shift
    printf '%s\n' "vedette: $*" >&2
    exit "$code"
}

# path OPTION VALUE: prints VALUE without a trailing slash; only plain absolute paths, at least two deep or new.
path() {
    value=${2%/}
    case $value in
        /*) ;;
        *) die 2 "$1: expects an absolute path, not '$2'" ;;
    esac
    case $value in
        *[!A-Za-z0-9._/-]* | *//* | */./* | */../* | */. | */..) die 2 "$1: expects a plain path, not '$2'" ;;
        / | /bin | /boot | /dev | /etc | /home | /lib | /lib64 | /media | /mnt | /opt | /proc | /root | /run | /sbin | /srv | /sys | /tmp | \
            /usr | /usr/bin | /usr/lib | /usr/local | /usr/local/bin | /usr/sbin | /var | /var/lib | /var/log | /var/tmp)
            die 2 "$1: $value belongs to the system; give a folder of its own"
            ;;
    esac
    printf '%s\n' "$value"
}

# recorded KEY: what an earlier run noted in PREFIX/installed.
recorded() {
    if [ -f "$prefix/installed" ]; then
        sed -n "s|^$1=||p" "$prefix/installed" | head -n 1
    fi
}

arguments() {
    action=install prefix='' config_dir='' data_dir='' systemd='' start=yes purge=no dry_run=no region=''
    while [ $# -gt 0 ]; do
        case $1 in
            --region | --prefix | --config-dir | --data-dir)
                [ $# -ge 2 ] || die 2 "$1: expects a value; see --help"
                case $1 in
                    --region) region=$2 ;;
                    --prefix) prefix=$(path "$1" "$2") ;;
                    --config-dir) config_dir=$(path "$1" "$2") ;;
                    --data-dir) data_dir=$(path "$1" "$2") ;;
                esac
                shift
                ;;
            --no-systemd) systemd=no ;;
            --no-start) start=no ;;
            --uninstall) action=uninstall ;;
            --purge) purge=yes ;;
            --dry-run) dry_run=yes ;;
            --help | -h) usage && exit 0 ;;
            *) die 2 "unknown option '$1'; see --help" ;;
        esac
        shift
    done
    prefix=${prefix:-/opt/vedette}
    [ -n "$config_dir" ] || config_dir=$(recorded config_dir)
    [ -n "$data_dir" ] || data_dir=$(recorded data_dir)
    [ -n "$systemd" ] || systemd=$(recorded systemd)
    config_dir=${config_dir:-/etc/vedette}
    data_dir=${data_dir:-/var/lib/vedette}
    systemd=${systemd:-yes}
    config=$config_dir/vedette.toml
    unit=/etc/systemd/system/vedette.service
    if [ "$prefix" = /opt/vedette ]; then command=/usr/local/bin/vedette; else command=$prefix/bin/vedette; fi
    [ "$purge" = no ] || [ "$action" = uninstall ] || die 2 "--purge goes with --uninstall"
    case $region in
        '') ;;
        *[!]A-Za-z0-9.:/[-]*) die 2 "--region: expects mqtt://HOST[:PORT] or mqtts://HOST[:PORT], not '$region'" ;;
        mqtt://?* | mqtts://?*) ;;
        *) die 2 "--region: expects mqtt://HOST[:PORT] or mqtts://HOST[:PORT], not '$region'" ;;
    esac
    if [ "$systemd" = yes ]; then
        [ "$(id -u)" = 0 ] || [ "$dry_run" = yes ] || die 3 "must run as root: use sudo (or --no-systemd with directories of your own)"
        [ -d /run/systemd/system ] || [ "$dry_run" = yes ] ||
            die 3 "systemd does not run here; install with --no-systemd and start 'vedette run' your own way"
        for directory in "$prefix" "$config_dir" "$data_dir"; do
            case $directory in
                /home/* | /root/* | /tmp/* | /var/tmp/*) die 2 "$directory: the unit cannot see it; give another folder, or --no-systemd" ;;
            esac
        done
    fi
}

# What the archive and the host must be, before anything is written.
preflight() {
    for program in cat chmod cp cut dd df du grep head id ln mkdir mv printf readlink rm sed sha256sum uname; do
        command -v "$program" >/dev/null 2>&1 || die 3 "the program '$program' is needed and not there"
    done
    [ -f "$here/SHA256SUMS" ] || die 2 "$here is not an unpacked release (no SHA256SUMS): build the zip with 'make dist'"
    [ "$(uname -s)" = Linux ] && [ "$(uname -m)" = x86_64 ] || die 3 "this release is for Linux on x86_64, not $(uname -s) on $(uname -m)"
    for flag in sse4_2 popcnt; do
        grep -qw "$flag" /proc/cpuinfo || die 3 "the processor lacks $flag, which the pattern matcher needs (x86-64-v2)"
    done
    case $here in
        "$prefix"/releases/*) whole "$here" || die 4 "$here is damaged: install it again from its archive" ;;
        *)
            if ! report=$(cd "$here" && sha256sum -c SHA256SUMS 2>&1); then
                die 4 "the archive is damaged, unpack it again: $(printf '%s\n' "$report" | grep -v ': OK$' | head -n 3)"
            fi
            ;;
    esac
    needed=$(($(du -sk "$here" | cut -f 1) * 2))
    parent=$prefix
    while [ ! -d "$parent" ]; do parent=$(dirname "$parent"); done
    free=$(df -Pk "$parent" | sed -n '$p' | sed 's/  */ /g' | cut -d ' ' -f 4)
    [ "$free" -ge "$needed" ] || die 3 "$parent: $needed KiB are needed and $free KiB free"
    version=$(cat "$here/VERSION")
    id=$version-$(sha256sum "$here/SHA256SUMS" | cut -c 1-12)
    release=$prefix/releases/$id
}

plan() {
    say "release $id to $release"
    if [ -f "$config" ]; then say "configuration $config stays as it is"; else say "configuration to $config"; fi
    say "data in $data_dir"
    say "command $command"
    if [ "$systemd" = no ]; then
        say "no unit, no user"
    elif [ "$start" = no ]; then
        say "user vedette and unit $unit, not started"
    else
        say "user vedette and unit $unit, started"
    fi
}

# render FILE TARGET MODE: FILE with this installation's paths; of further sed expressions, those in $also.
render() {
    sed -e 's|/opt/vedette|@PREFIX@|g' -e 's|/etc/vedette|@CONFIG@|g' -e 's|/var/lib/vedette|@DATA@|g' \
        -e "s|@PREFIX@|$prefix|g" -e "s|@CONFIG@|$config_dir|g" -e "s|@DATA@|$data_dir|g" -e "$also" \
        "$1" >"$2.tmp.$$"
    chmod "$3" "$2.tmp.$$"
    mv "$2.tmp.$$" "$2"
}

# own FOLDER: makes FOLDER if need be, marked as ours when it is new or empty, so that --purge removes no other's.
own() {
    mkdir -p "$1"
    [ -n "$(ls -A "$1")" ] || : >"$1/.vedette"
}

# point LINK TARGET: atomically.
point() {
    ln -s "$2" "$1.tmp.$$"
    mv -T "$1.tmp.$$" "$1"
}

# whole RELEASE: its files are as they came. The program is left out: it holds the path of its loader.
whole() {
    [ -d "$1" ] && (cd "$1" && grep -v '  runtime/bin/vedetted$' SHA256SUMS | sha256sum -c - >/dev/null 2>&1)
}

# Copies the release to its final place under a temporary name, writes the loader's path into it, renames, tries it.
unpack() {
    if whole "$release"; then return 0; fi
    changed=yes
    mkdir -p "$prefix/releases"
    new=$prefix/releases/.new.$$
    mkdir "$new"
    cp -R "$here/." "$new"
    chmod -R u=rwX,go=rX "$new"
    loader=runtime/lib/ld-linux-x86-64.so.2
    chmod 755 "$new/install.sh" "$new/bin/vedette" "$new/runtime/bin/vedetted" "$new/$loader"
    read -r offset length <"$new/runtime/interpreter.offset"
    path=$release/$loader
    [ ${#path} -lt "$length" ] || die 2 "--prefix: too long a path"
    {
        printf '%s' "$path"
        dd if=/dev/zero bs=1 count=$((length - ${#path})) 2>/dev/null
    } | dd of="$new/runtime/bin/vedetted" bs=1 seek="$offset" conv=notrunc 2>/dev/null
    sync -f "$new" 2>/dev/null || sync
    if [ -e "$release" ]; then
        rm -rf "$prefix/releases/.old.$$"
        mv "$release" "$prefix/releases/.old.$$"
    fi
    mv "$new" "$release"
    new=$release
    try_out
    new=''
    rm -rf "$prefix/releases/.old.$$"
}

try_out() {
    modules='cryptography.hazmat.primitives.asymmetric.ed25519, hyperscan, lmdb, msgpack, orjson, regex, ssl, zstandard'
    if ! report=$("$release/runtime/bin/vedetted" -I -S -B -c "import sys; sys.path.append(sys.argv[1]); import $modules" "$release/packages" 2>&1) ||
        ! report=$("$release/bin/vedette" version 2>&1); then
        die 5 "release $id does not run on this host; nothing was switched: $report"
    fi
}

user() {
    getent group vedette >/dev/null || groupadd --system vedette
    getent passwd vedette >/dev/null ||
        useradd --system --gid vedette --home-dir "$data_dir" --no-create-home --shell /usr/sbin/nologin vedette
}

folders() {
    own "$config_dir"
    own "$data_dir"
    chmod 750 "$config_dir" "$data_dir"
    if [ "$systemd" = yes ]; then
        chgrp vedette "$config_dir"
        [ "$(stat -c %U "$data_dir")" = vedette ] || chown -R vedette:vedette "$data_dir"
    fi
}

configuration() {
    also=''
    if [ -n "$region" ]; then
        also="/^\\[uplink\\]/,/^\\[log\\]/{s|^#type = .*|type = \"mqtt\"|;s|^#url = .*|url = \"$region\"|;}"
    fi
    render "$here/vedette.toml" "$config.new" 640
    if [ "$systemd" = yes ]; then chgrp vedette "$config.new"; fi
    if [ ! -e "$config" ]; then
        changed=yes
        mv "$config.new" "$config"
    elif cmp_files "$config.new" "$config"; then
        rm -f "$config.new"
    else
        say "$config stays as it is; this release's is beside it: $config.new"
        key=$(sed -n 's/^trusted_keys = \["\(.*\)"\]$/\1/p' "$config.new")
        if [ -n "$key" ] && ! grep -qF "$key" "$config"; then
            warn "$config does not trust the key of this release's starter rules: take trusted_keys over to use them"
        fi
    fi
    code=0
    report=$("$release/bin/vedette" check -c "$config" 2>&1) || code=$?
    case $code in
        0) ;;
        1) warn "$report" ;;
        *) die 5 "release $id does not take $config; nothing was switched: $report" ;;
    esac
}

cmp_files() { [ "$(sha256sum <"$1")" = "$(sha256sum <"$2")" ]; }

switch() {
    before=$(readlink "$prefix/current" 2>/dev/null || :)
    if [ "$before" != "releases/$id" ]; then
        changed=yes
        point "$prefix/current" "releases/$id"
    fi
    mkdir -p "$(dirname "$command")"
    if [ -e "$command" ] && [ ! -L "$command" ]; then
        warn "$command is there and not ours; call $prefix/current/bin/vedette"
    else
        point "$command" "$prefix/current/bin/vedette"
    fi
    printf '%s\n' "config_dir=$config_dir" "data_dir=$data_dir" "systemd=$systemd" >"$prefix/installed.tmp.$$"
    mv "$prefix/installed.tmp.$$" "$prefix/installed"
}

# Remembers the release before this one and deletes the others.
prune() {
    if [ -n "$before" ] && [ "$before" != "releases/$id" ]; then point "$prefix/previous" "$before"; fi
    for folder in "$prefix"/releases/* "$prefix"/releases/.new.* "$prefix"/releases/.old.*; do
        case releases/${folder##*/} in
            "$(readlink "$prefix/current")" | "$(readlink "$prefix/previous" 2>/dev/null || :)") ;;
            *) rm -rf "$folder" ;;
        esac
    done
}

service() {
    also=''
    if ! getent group adm >/dev/null; then also='/^SupplementaryGroups=adm$/d'; fi
    render "$here/vedette.service" "$unit.new" 644
    if [ -e "$unit" ] && cmp_files "$unit.new" "$unit"; then
        rm -f "$unit.new"
    else
        changed=yes
        mv "$unit.new" "$unit"
    fi
    systemctl daemon-reload
    systemctl enable --quiet vedette
    [ "$start" = yes ] || return 0
    if [ "$changed" = yes ]; then verb=restart; else verb=start; fi
    systemctl $verb vedette || :
    if healthy; then return 0; fi
    journalctl -u vedette -n 20 --no-pager >&2 || :
    if [ -n "$before" ] && [ "$before" != "releases/$id" ]; then
        point "$prefix/current" "$before"
        render "$prefix/$before/vedette.service" "$unit" 644
        systemctl daemon-reload
        systemctl restart vedette || :
        rm -rf "$release"
        die 6 "release $id did not come up; ${before#releases/} runs again"
    fi
    die 6 "the agent did not come up: see the lines above, then 'journalctl -u vedette'"
}

# Within 30 s the agent answers for itself (exit code 1: it runs, and something in its account is not as it should be).
healthy() {
    tries=0
    while [ $tries -lt 30 ]; do
        code=0
        report=$("$prefix/current/bin/vedette" status -c "$config" 2>&1) || code=$?
        case $code in
            0) return 0 ;;
            1) warn "$report" && return 0 ;;
        esac
        tries=$((tries + 1))
        sleep 1
    done
    return 1
}

lock() {
    mkdir -p "$prefix"
    if command -v flock >/dev/null 2>&1; then
        exec 9>>"$prefix/.lock"
        flock -n 9 || die 1 "another run of install.sh is at work in $prefix"
    fi
}

clean() {
    code=$?
    if [ -n "$new" ]; then rm -rf "$new"; fi
    if [ -d "$prefix/releases/.old.$$" ] && [ ! -e "$release" ]; then mv "$prefix/releases/.old.$$" "$release"; fi
    rm -f "$config.new.tmp.$$" "$unit.new.tmp.$$" "$prefix/current.tmp.$$" "$prefix/previous.tmp.$$" "$prefix/installed.tmp.$$"
    exit "$code"
}

install() {
    preflight
    plan
    if [ "$dry_run" = yes ]; then
        say "nothing was done (--dry-run)"
        return 0
    fi
    umask 022
    lock
    changed=no new='' before=''
    trap clean EXIT
    trap 'exit 1' HUP INT TERM
    unpack
    if [ "$systemd" = yes ]; then user; fi
    folders
    configuration
    switch
    if [ "$systemd" = yes ]; then service; fi
    prune
    if [ "$changed" = no ]; then say "all is in place, nothing changed"; else say "installed $id"; fi
    if [ "$systemd" = no ]; then
        say "start it: $command run -c $config"
    elif [ "$start" = no ]; then
        say "start it: systemctl start vedette"
    else
        say "see it: $command status"
    fi
}

# remove FOLDER: with all in it, if it was made by this script.
remove() {
    if [ -f "$1/.vedette" ]; then
        rm -rf "$1"
        say "removed $1"
    elif [ -d "$1" ]; then
        warn "$1 was there before Vedette and stays; what is in it is yours to remove"
    fi
}

uninstall() {
    if [ ! -e "$prefix/installed" ] && [ ! -e "$prefix/releases" ]; then
        say "nothing is installed in $prefix"
    fi
    if [ "$dry_run" = yes ]; then
        say "program $prefix, command $command$([ "$systemd" = no ] || printf ', unit %s' "$unit") would go"
        [ "$purge" = no ] || say "configuration $config_dir and data $data_dir would go"
        return 0
    fi
    if [ "$systemd" = yes ]; then
        systemctl disable --quiet --now vedette 2>/dev/null || :
        rm -f "$unit"
        systemctl daemon-reload
        systemctl reset-failed vedette 2>/dev/null || :
    fi
    if [ "$(readlink "$command" 2>/dev/null || :)" = "$prefix/current/bin/vedette" ]; then rm -f "$command"; fi
    rm -rf "$prefix/releases" "$prefix/current" "$prefix/previous" "$prefix/installed" "$prefix/.lock"
    if [ "$purge" = yes ]; then
        remove "$config_dir"
        remove "$data_dir"
        if [ "$systemd" = yes ] && getent passwd vedette >/dev/null; then userdel vedette; fi
    else
        say "configuration $config_dir and data $data_dir stay; --uninstall --purge removes them"
    fi
    [ "$prefix" = /opt/vedette ] || rmdir "$prefix/bin" 2>/dev/null || :
    rmdir "$prefix" 2>/dev/null || :
    say "uninstalled"
}

main() {
    here=$(cd "$(dirname "$0")" && pwd -P)
    arguments "$@"
    "$action"
}

main "$@"
