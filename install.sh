#!/bin/sh
# Installs, upgrades, rolls back and removes the Vedette agent. Downloads nothing, asks nothing, needs no Python and no
# unzip on the host:
#
#   sudo sh vedette-0.1.0-linux-x86_64.zip [OPTION...]          the zip is a shell script, too
#   unzip vedette-0.1.0-linux-x86_64.zip && sudo sh vedette/install.sh [OPTION...]
#   sudo sh /opt/vedette/current/install.sh --rollback | --uninstall [--purge]
#   sh PREFIX/supervise.sh --supervise                          without systemd: runs the agent, and its upgrades
#
# It acts on the installation that --prefix names, else on the one that it is part of (PREFIX/current/install.sh,
# PREFIX/supervise.sh), else, out of a zip, on /opt/vedette. Program, configuration and data of another installation on
# the host are never touched: PREFIX/installed says which prefix it is of, FOLDER/.vedette which prefix has the folder.
#
# Every option can also be given by a variable, for provisioning without arguments; an option wins:
#
#   VEDETTE_REGION  VEDETTE_LISTEN  VEDETTE_PREFIX  VEDETTE_CONFIG_DIR  VEDETTE_DATA_DIR  VEDETTE_RELEASE_KEY
#   VEDETTE_SITE_KEY  VEDETTE_GRACE  VEDETTE_LOG  VEDETTE_TOKEN  VEDETTE_WITH  VEDETTE_WITHOUT  as the options of these names
#   VEDETTE_NO_SYSTEMD=1  VEDETTE_NO_START=1  as these options
#
# Under the prefix lie releases/VERSION-DIGEST, each whole, and the links `current` and `previous`. A release is unpacked
# under another name, checked against its digests, renamed, and tried on this host with the configuration that it is to
# run; only then `current` moves to it, by an atomic rename. Whatever fails, what was there before is put back. After an
# upgrade the service vedette-watch looks after the new release for a while and goes back when it does not stay up.
#
# An add-on is a file of its own beside the zip, for that release alone. It is unpacked into the release's folder, as
# addons/NAME, before `current` moves, so that it comes, goes back and goes with its release. A host that has one keeps it:
# an upgrade without the new release's file of it is refused before anything is written.
#
# Upgrades by the fleet: the agent, which may write its data folder alone, fetches a zip and asks for it there
# (upgrade/request). vedette-upgrade.service, or `--supervise` where no systemd is, runs the installed release's copy of
# this script (--staged). That checks the zip as a hand would, and installs it. From before `current` moves until the new
# release has confirmed itself (upgrade/verdict), the older release's copy (watch.sh, supervise.sh) looks after it.
#
# Exit codes:
#    0 done                                  20 the archive is damaged
#    1 failed for another reason; undone     21 the signature is wrong or cannot be checked
#    2 wrong use                             30 the release does not run on this host; undone
#   10 not root, or a program is missing     31 the release does not take the configuration; undone
#   11 another architecture                  32 the agent did not come up; undone
#   12 the processor lacks instructions      40 another run is at work
#   13 not enough disk; undone               41 nothing to roll back to
#   14 not enough memory                     42 nothing is installed (--upgrade, --supervise)
#   15 the port is in use                    43 an older release than the installed one (--upgrade)
#   16 no systemd, or older than 229
#   17 a folder cannot be written to
#   18 an add-on is missing, or is for another release
#   19 systemd runs another installation
#
# --supervise ends with the code of the agent, --staged always with 0: its answer has the code.

set -eu

usage() {
    cat <<'END'
usage: sh install.sh [OPTION...]

  --region URL        send alerts to this broker: mqtt://HOST[:PORT] or mqtts://HOST[:PORT] (default: a local folder)
  --token TOKEN       become a member of the region by this token ('vedette region token create'); needs --region
  --listen ADDRESS    take syslog here, HOST:PORT over UDP and TCP (default 127.0.0.1:514)
  --prefix DIR        program, default the installation that this script is part of, else /opt/vedette
  --config-dir DIR    vedette.toml, default /etc/vedette
  --data-dir DIR      raw logs, outbox and bundles, default /var/lib/vedette
  --release-key KEY   the key that must have signed this release, ed25519:BASE64; later releases must be signed by it
                      (default: the key of the release that was installed first)
  --site-key KEY      the region's key that must have signed the site's part of a zip per site, ed25519:BASE64; needed
                      with --release-key; later parts must be signed by it (default: the key that the first one brought)
  --with ADD-ON       with this add-on, archive or kafka: by name, when its file lies beside the zip, or the file; may be
                      given again, and names with commas between (default: those that the installed release has)
  --without NAME      without this add-on, though the installed release has it
  --upgrade           fail when nothing is installed yet, or what is installed is a newer release
  --allow-downgrade   with --upgrade: go to an older release all the same
  --supervise         run the agent where there is no systemd, with upgrades by its fleet: sh PREFIX/supervise.sh
                      --supervise
  --rollback          go back to the release before this one
  --uninstall         remove program, units and command; configuration and data stay
  --purge             with --uninstall: remove configuration, data, user and log, too
  --grace SECONDS     how long a new release is watched after an upgrade (default 300; 0: not at all)
  --force-restart     restart the agent even if nothing changed
  --no-systemd        install no unit and no user: for containers and tests; then root is not needed
  --no-start          install the units, but do not start them
  --log FILE          what was done (default /var/log/vedette-install.log; without systemd PREFIX/install.log)
  --dry-run           check everything, say what would be done, and do nothing
  --help              this text

An existing vedette.toml is never changed: this release's is written beside it as vedette.toml.new when it differs.
Directories given once are used again by the next run with the same prefix.
END
}

MINIMUM_SYSTEMD=229
MINIMUM_MEMORY=131072
SERVICE_FILES="vedette.service vedette-udp.socket vedette-tcp.socket vedette-watch.service vedette-upgrade.service vedette-upgrade.path"
UNITS=/etc/systemd/system
COMMAND=/usr/local/bin/vedette

note() {
    if [ -n "$log" ]; then printf '%s %s\n' "$(date '+%Y-%m-%dT%H:%M:%S%z')" "$*" >>"$log" 2>/dev/null || :; fi
}
say() {
    printf '%s\n' "vedette: $*" 2>/dev/null || : # whoever read it may be gone
    note "$*"
}
warn() {
    printf '%s\n' "vedette: warning: $*" >&2 || :
    note "warning: $*"
}
die() {
    code=$1
    shift
    printf '%s\n' "vedette: $*" >&2 || :
    note "$* (exit code $code)"
    told=yes
    exit "$code"
}

# path OPTION VALUE: $value is VALUE without a trailing slash; only plain absolute paths, at least two deep or new.
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
}

# number TEXT: it is one that this shell can reckon with, as programs and files should give it.
number() {
    case $1 in '' | *[!0-9]* | ????????????????*) return 1 ;; esac
}

# needs PROGRAM...
needs() {
    for program in "$@"; do
        command -v "$program" >/dev/null 2>&1 || die 10 "the program '$program' is needed and not there"
    done
}

# writable FOLDER: this run may write to it, or make it; sets folder, the innermost part of its path that is there.
writable() {
    folder=$1
    while [ ! -e "$folder" ] && [ ! -L "$folder" ]; do folder=$(dirname "$folder"); done
    if [ "$systemd" = yes ] && [ "$(id -u)" != 0 ]; then return 0; fi # a dry run, of what root would do
    [ -d "$folder" ] && [ -w "$folder" ] && ! read_only "$folder"
}

# read_only FOLDER: its file system is. BusyBox answers `-w` by the mode alone when root asks.
read_only() {
    mounted=$(df -P "$1" | sed -n '$s|^.* [0-9]*[%-]  *\(/.*\)$|\1|p') flags=''
    { while read -r _ point _ options _; do [ "$point" != "$mounted" ] || flags=$options; done </proc/mounts; } 2>/dev/null || :
    case $flags in ro | ro,*) ;; *) return 1 ;; esac
}

# public KEY: it has the form of one.
public() {
    case $1 in
        ed25519:*[!A-Za-z0-9+/=]*) return 1 ;;
        ed25519:????????????????????????????????????????????) ;;
        *) return 1 ;;
    esac
}

# names OPTION VALUE: $value is the names in VALUE, which stand with commas between, as words.
names() {
    case ,$2, in *[!a-z0-9,]* | *,,* | *,[0-9]*) die 2 "$1: expects names such as archive or archive,kafka, not '$2'" ;; esac
    value=$(printf '%s' "$2" | sed 's/,/ /g')
}

# wish OPTION VALUE: notes an add-on that is given by name or by file.
wish() {
    case $2 in
        */* | *.zip) with_files="$with_files$2
" ;;
        *) names "$1" "$2" && with="$with $value" ;;
    esac
}

# fact FILE KEY: the value of a line KEY=VALUE.
fact() {
    if [ -f "$1" ]; then sed -n "s|^$2=||p" "$1" | head -n 1; fi
}

# recorded: the directories and the address that the installation in $prefix has.
recorded() {
    [ -f "$prefix/installed" ] || return 0
    config_dir=$(fact "$prefix/installed" config_dir) data_dir=$(fact "$prefix/installed" data_dir)
    listen=$(fact "$prefix/installed" listen) config=$config_dir/vedette.toml
}

# ours LINK: the command, of the installation in $prefix.
ours() { [ "$(readlink "$1" 2>/dev/null || :)" = "$prefix/current/bin/vedette" ]; }

# Sets home, the prefix of the installation that this script is part of: it lies there as releases/ID/install.sh,
# watch.sh or supervise.sh. Empty where it came out of a zip.
place_of_script() {
    home=''
    if [ -f "$here/installed" ]; then
        home=$here
    elif [ -f "$here/FILES.sha256" ]; then
        case ${here%/*} in
            */releases) home=${here%/releases/*} ;;
            *) [ -n "$prefix" ] || die 2 "$here is a release outside of an installation: name the one that is meant with --prefix" ;;
        esac
    fi
    prefix=${prefix:-$home}
}

# The prefix as the installation has it, whatever link leads there. A copy of an installation names folders that are not
# its own.
place_of_installation() {
    named=$(fact "$prefix/installed" prefix) real=$(cd "$prefix" 2>/dev/null && pwd -P) || :
    if [ -n "$named" ] && [ "$named" != "$prefix" ]; then
        [ "$(cd "$named" 2>/dev/null && pwd -P)" = "$real" ] ||
            die 2 "$prefix was copied or moved from $named, whose configuration and data it names: nothing is done with it"
        prefix=$named
    fi
    [ -z "$home" ] || [ "$action" != install ] || [ "$home" = "$real" ] ||
        die 2 "$0 is part of the installation in $home: for $prefix take the zip"
}

arguments() {
    action=install upgrade=no downgrade=no purge=no dry_run=no force=no within=''
    region=${VEDETTE_REGION:-} token=${VEDETTE_TOKEN:-} listen=${VEDETTE_LISTEN:-} prefix=${VEDETTE_PREFIX:-}
    config_dir=${VEDETTE_CONFIG_DIR:-} data_dir=${VEDETTE_DATA_DIR:-} release_key=${VEDETTE_RELEASE_KEY:-}
    site_key=${VEDETTE_SITE_KEY:-}
    grace=${VEDETTE_GRACE:-300} log_file=${VEDETTE_LOG:-}
    with='' with_files='' without=''
    systemd='' start=yes
    if [ -n "${VEDETTE_NO_SYSTEMD:-}" ]; then systemd=no; fi
    if [ -n "${VEDETTE_NO_START:-}" ]; then start=no; fi
    while [ $# -gt 0 ]; do
        case $1 in
            --region | --token | --listen | --prefix | --config-dir | --data-dir | --release-key | --site-key | --grace | --log | --with | --without | --within)
                [ $# -ge 2 ] || die 2 "$1: expects a value; see --help"
                case $1 in
                    --region) region=$2 ;;
                    --token) token=$2 ;;
                    --listen) listen=$2 ;;
                    --prefix) prefix=$2 ;;
                    --config-dir) config_dir=$2 ;;
                    --data-dir) data_dir=$2 ;;
                    --release-key) release_key=$2 ;;
                    --site-key) site_key=$2 ;;
                    --grace) grace=$2 ;;
                    --log) log_file=$2 ;;
                    --with) wish --with "$2" ;;
                    --without) names --without "$2" && without="$without $value" ;;
                    --within) within=$2 ;; # seconds in which the new release must confirm itself
                esac
                shift
                ;;
            --no-systemd) systemd=no ;;
            --no-start) start=no ;;
            --force-restart) force=yes ;;
            --upgrade) upgrade=yes ;;
            --allow-downgrade) downgrade=yes ;;
            --rollback) action=rollback ;;
            --uninstall) action=uninstall ;;
            --watch) action=watch ;; # what vedette-watch.service runs
            --staged) action=staged ;; # what vedette-upgrade.service runs
            --supervise) action=supervise ;;
            --purge) purge=yes ;;
            --dry-run) dry_run=yes ;;
            --help | -h) usage && exit 0 ;;
            *) die 2 "unknown option '$1'; see --help" ;;
        esac
        shift
    done
    programs
    place_of_script
    path --prefix "${prefix:-/opt/vedette}"
    prefix=$value
    place_of_installation
    wanted_listen=$listen wanted_config_dir=$config_dir wanted_data_dir=$data_dir wanted_log=$log_file
    looked=$(grounds)
    [ -n "$config_dir" ] || config_dir=$(fact "$prefix/installed" config_dir)
    [ -n "$data_dir" ] || data_dir=$(fact "$prefix/installed" data_dir)
    [ -n "$listen" ] || listen=$(fact "$prefix/installed" listen)
    if [ "$systemd" = no ] && [ "$(fact "$prefix/installed" systemd)" = yes ]; then
        die 2 "--no-systemd: systemd runs the installation in $prefix; remove that one first, or name another with --prefix"
    fi
    [ -n "$systemd" ] || systemd=$(fact "$prefix/installed" systemd)
    path --config-dir "${config_dir:-/etc/vedette}"
    config_dir=$value
    path --data-dir "${data_dir:-/var/lib/vedette}"
    data_dir=$value
    listen=${listen:-127.0.0.1:514}
    systemd=${systemd:-yes}
    config=$config_dir/vedette.toml
    command=$prefix/bin/vedette
    if [ "$prefix" = /opt/vedette ] && { ours "$COMMAND" || writable "${COMMAND%/*}"; }; then command=$COMMAND; fi
    if [ -n "$log_file" ]; then
        case $log_file in
            /*) ;;
            *) die 2 "--log: expects an absolute path, not '$log_file'" ;;
        esac
    elif [ "$systemd" = yes ]; then
        log_file=/var/log/vedette-install.log
    else
        log_file=$prefix/install.log
    fi
    [ "$purge" = no ] || [ "$action" = uninstall ] || die 2 "--purge goes with --uninstall"
    [ "$upgrade" = no ] || [ "$action" = install ] || die 2 "--upgrade does not go with --$action"
    [ "$downgrade" = no ] || [ "$upgrade" = yes ] || die 2 "--allow-downgrade goes with --upgrade"
    [ -z "$with$with_files$without" ] || [ "$action" = install ] || die 2 "--with and --without do not go with --$action"
    if [ "$action" = install ]; then
        [ -n "$with$with_files" ] || [ -z "${VEDETTE_WITH:-}" ] || wish VEDETTE_WITH "$VEDETTE_WITH"
        [ -n "$without" ] || [ -z "${VEDETTE_WITHOUT:-}" ] || { names VEDETTE_WITHOUT "$VEDETTE_WITHOUT" && without=$value; }
    fi
    [ -z "$within" ] || number "$within" || die 2 "--within: expects seconds, not '$within'"
    if [ "$systemd" = yes ]; then answers=/run/vedette-upgrade; else answers=$data_dir/upgrade; fi
    number "$grace" || die 2 "--grace: expects seconds, not '$grace'"
    case $region in
        '') ;;
        *[!]A-Za-z0-9.:/[-]*) die 2 "--region: expects mqtt://HOST[:PORT] or mqtts://HOST[:PORT], not '$region'" ;;
        mqtt://?* | mqtts://?*) ;;
        *) die 2 "--region: expects mqtt://HOST[:PORT] or mqtts://HOST[:PORT], not '$region'" ;;
    esac
    case $token in
        '') ;;
        *[!A-Za-z0-9._:-]*) die 2 "--token: expects v1:FLEET:ID:SECRET, as 'vedette region token create' prints it" ;;
        v1:?*:????????????????:???????????????????????????????????????????) ;;
        *) die 2 "--token: expects v1:FLEET:ID:SECRET, as 'vedette region token create' prints it" ;;
    esac
    [ -z "$token" ] || [ -n "$region" ] || die 2 "--token needs --region, the broker's address"
    case $listen in
        *[!]A-Za-z0-9.:[-]*) die 2 "--listen: expects HOST:PORT, not '$listen'" ;;
        *:*[!0-9]* | *: | :*) case $listen in
            \[*\]:[0-9]*) ;;
            *) die 2 "--listen: expects HOST:PORT, not '$listen'" ;;
        esac ;;
        ?*:[0-9]*) ;;
        *) die 2 "--listen: expects HOST:PORT, not '$listen'" ;;
    esac
    port=${listen##*:}
    case $port in
        [1-9] | [1-9][0-9] | [1-9][0-9][0-9] | [1-9][0-9][0-9][0-9] | [1-9][0-9][0-9][0-9][0-9]) ;;
        *) die 2 "--listen: the port is a number from 1 to 65535 without leading zeros, not '$port'" ;;
    esac
    [ "$port" -le 65535 ] || die 2 "--listen: the port is a number from 1 to 65535, not '$port'"
    [ -z "$release_key" ] || public "$release_key" || die 2 "--release-key: expects ed25519:BASE64, not '$release_key'"
    [ -z "$site_key" ] || public "$site_key" || die 2 "--site-key: expects ed25519:BASE64, not '$site_key'"
    if [ "$systemd" = yes ]; then
        [ "$(id -u)" = 0 ] || [ "$dry_run" = yes ] ||
            die 10 "must run as root: use sudo (or --no-systemd with directories of your own)"
        for directory in "$prefix" "$config_dir" "$data_dir"; do
            case $directory in
                /home/* | /root/* | /tmp/* | /var/tmp/*) die 2 "$directory: the unit cannot see it; give another folder, or --no-systemd" ;;
            esac
        done
    fi
}

# --- what the host and the archive must be, before anything is written

programs() {
    needs cat chmod cp cut date dd df dirname find flock grep gzip head id ln ls mkdir mktemp mv printf readlink rm rmdir sed sha256sum sleep tail tar tr uname
}

preflight() {
    step="looking at the host"
    [ -f "$here/RELEASE" ] && [ -f "$here/SHA256SUMS" ] || [ -f "$here/FILES.sha256" ] ||
        die 2 "$here is not a release (no RELEASE): build the zip with 'make dist'"
    version=$(fact "$here/RELEASE" version)
    arch=$(fact "$here/RELEASE" arch)
    [ "$(uname -s)-$(uname -m)" = "Linux-$arch" ] ||
        die 11 "this release is for Linux on $arch, and this host is $(uname -s) on $(uname -m): take the zip whose name ends in $(uname -m)"
    [ -r /proc/meminfo ] || die 10 "/proc is not mounted"
    case $arch in
        x86_64) flags="popcnt bmi1 bmi2 abm avx2" wanted="x86-64-v3 (Intel from Haswell, AMD from Excavator on), also as the processor type of a virtual machine" ;;
        *) flags=asimd wanted=ARMv8-A ;;
    esac
    lacking=''
    for flag in $flags; do
        grep -qw "$flag" /proc/cpuinfo || lacking="$lacking $flag"
    done
    [ -z "$lacking" ] || die 12 "the processor lacks$lacking, which the pattern matcher is compiled for; it takes $wanted"
    if [ "$systemd" = yes ] && { [ "$dry_run" = no ] || [ -d /run/systemd/system ]; }; then
        [ -d /run/systemd/system ] ||
            die 16 "systemd does not run here; install with --no-systemd and start 'vedette run' your own way"
        needs systemctl stat chown chgrp getent
        for base in passwd group; do getent $base vedette >/dev/null || needs groupadd useradd userdel; done
        systemd_version
        number "$systemd_is" || die 10 "'systemctl --version' gives no version"
        [ "$systemd_is" -ge $MINIMUM_SYSTEMD ] || die 16 "systemd $systemd_is is older than $MINIMUM_SYSTEMD: install with --no-systemd"
    fi
    one_under_systemd
    integrity
    addons
    set -- "$prefix" "$config_dir" "$data_dir" "$(dirname "$command")" "$(dirname "$log_file")"
    if [ "$systemd" = yes ]; then set -- "$@" "$UNITS"; fi
    for place in "$@"; do
        writable "$place" || die 17 "$folder cannot be written to (a read-only file system, or no folder?): give another place with --prefix, --config-dir, --data-dir, --log"
    done
    for place in "$config_dir" "$data_dir"; do
        ! others "$place" || die 2 "$place is of the installation in $owner: give a folder of its own with --config-dir, --data-dir"
    done
    for place in "$prefix" "$config_dir" "$data_dir"; do
        [ -f "$prefix/installed" ] || ! around "$place" ||
            die 2 "$place lies in a folder of the installation in $owner, or holds one: give a folder of its own with --prefix, --config-dir, --data-dir"
    done
    writable "$prefix"
    parent=$folder
    if [ "$systemd" = yes ] && foreign "$data_dir"; then
        die 2 "$data_dir holds files that are not Vedette's, and would be the user vedette's: give an empty folder with --data-dir, or make a file $data_dir/.vedette to say that all in it is Vedette's"
    fi
    needed=$(fact "$here/RELEASE" unpacked_kib)
    number "$needed" || die 20 "$here/RELEASE is damaged: it does not say how much is unpacked"
    needed=$((needed * 6 / 5 + 16384))
    if [ -d "$release" ]; then needed=16384; fi
    needed=$((needed + addons_kib))
    free=$(free_kib "$parent")
    number "$free" || die 10 "'df -Pk $parent' does not say how much is free"
    [ "$free" -ge $needed ] || die 13 "$parent: $needed KiB are needed and $free KiB free"
    available=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB$/\1/p' /proc/meminfo)
    [ "${available:-$MINIMUM_MEMORY}" -ge $MINIMUM_MEMORY ] ||
        die 14 "$available KiB of memory are available and $MINIMUM_MEMORY KiB needed"
    ours=$(fact "$prefix/installed" listen)
    if [ "$systemd" = yes ] && { [ ! -e "$UNITS/vedette-udp.socket" ] || [ "$port" != "${ours##*:}" ]; } && in_use "$port"; then
        die 15 "port $port is in use by another program (ss -lnptu 'sport = $port' tells which): stop it, or choose another with --listen HOST:PORT"
    fi
    if [ -n "$wanted_listen" ] && [ "$wanted_listen" != "$ours" ] && ! named; then
        die 2 "--listen: $config, which is never changed, does not name $listen: write it there first, then run this again"
    fi
}

# member FILE NAME: a part of an add-on file, of which the first 4096 bytes say where it lies.
member() {
    where=$(head -c 4096 "$1" | sed -n "s/^# part $2 \([0-9]\{1,9\} [0-9]\{1,9\}\)\$/\1/p" | head -n 1)
    [ -z "$where" ] || tail -c +"${where% *}" "$1" 2>/dev/null | head -c "${where#* }"
}

# described FILE KEY: what an add-on file says of itself.
described() { member "$1" ADDON | sed -n "s/^$2=//p" | head -n 1; }

# carried RELEASE: the names of its add-ons; also of one that --without was taking out when it was killed.
carried() {
    for folder in "$1"/addons/* "$1"/addons/.gone.*; do
        name=${folder##*/}
        if [ -f "$folder/ADDON" ]; then printf '%s ' "${name#.gone.}"; fi
    done
}

# added NAME: the release has it, whole.
added() {
    for folder in "$release/addons/$1" "$release/addons/.gone.$1"; do
        if [ -f "$folder/ADDON" ] && (cd "$folder" && sha256sum -c FILES.sha256 >/dev/null 2>&1); then return 0; fi
    done
    return 1
}

# restore: puts back what --without has taken out.
restore() {
    for folder in "$release"/addons/.gone.*; do
        name=${folder##*/.gone.}
        if [ -d "$folder" ] && [ ! -e "$release/addons/$name" ]; then mv "$folder" "$release/addons/$name"; fi
    done
}

# Sets addons, the names of those that the release is to have, and for each that it has not got yet file_NAME, its file,
# which is looked at before anything is written. Who signed it is looked at with the release's program: see `add`.
addons() {
    step="looking at the add-ons"
    addons='' addons_kib=0
    while read -r file; do
        [ -n "$file" ] || continue
        [ -f "$file" ] || die 18 "--with: there is no file $file"
        name=$(described "$file" addon)
        case $name in
            '' | *[!a-z0-9]* | [0-9]*) die 20 "$file is no add-on of Vedette, or damaged: copy it again, in binary mode" ;;
        esac
        eval "file_$name=\$file"
        with="$with $name"
    done <<END
$with_files
END
    for name in $with $(carried "$prefix/current"); do
        case " $addons $without " in *" $name "*) continue ;; esac
        addons="$addons $name"
        if added "$name"; then continue; fi
        wanted=vedette-$version-linux-$arch-$name.zip
        eval "file=\${file_$name:-}"
        for folder in "$(dirname "${VEDETTE_ARCHIVE:-$here/x}")" "$here/.." .; do
            if [ -z "$file" ] && [ -f "$folder/$wanted" ]; then file=$folder/$wanted; fi
        done
        if [ -z "$file" ]; then
            case " $with " in
                *" $name "*) die 18 "--with $name: $wanted is not beside ${VEDETTE_ARCHIVE:-$here}: put it there, or give its path: --with FOLDER/$wanted" ;;
                *) die 18 "the installed release has the add-on $name, and $wanted is not beside ${VEDETTE_ARCHIVE:-$here}: put it there, give its path (--with FOLDER/$wanted), or go on without it (--without $name)" ;;
            esac
        fi
        fits "$file" "$name"
        addons_kib=$((addons_kib + $(described "$file" unpacked_kib) * 2))
        eval "file_$name=\$file"
    done
}

# fits FILE NAME: it is the add-on of this release, and whole.
fits() {
    for key in addon release arch unpacked_kib sha256; do
        case $(described "$1" $key) in '' | *[!0-9A-Za-z.+_~-]*) die 20 "$1 is no add-on of Vedette, or damaged: copy it again, in binary mode" ;; esac
    done
    case $(described "$1" unpacked_kib) in *[!0-9]* | ????????*) die 20 "$1 is no add-on of Vedette, or damaged: copy it again, in binary mode" ;; esac
    [ "$(described "$1" addon)" = "$2" ] || die 18 "$1 is the add-on $(described "$1" addon) and not $2: is it the right file?"
    [ "$(described "$1" arch)" = "$arch" ] || die 11 "$1 is for $(described "$1" arch), and this release for $arch: take $wanted"
    [ "$(described "$1" release)" = "$id" ] || die 18 "$1 is for release $(described "$1" release), and this is $id: take $wanted that was built with it"
    [ "$(member "$1" payload.tar.gz | sha256sum | cut -d ' ' -f 1)" = "$(described "$1" sha256)" ] ||
        die 20 "$1 is damaged: its payload.tar.gz is not what it says itself: copy it again, in binary mode"
}

# named: an existing vedette.toml has the address, without which the agent does not find the sockets there.
named() { [ ! -r "$config" ] || grep -v '^ *#' "$config" | grep -qF -e "\"$listen\"" -e "'$listen'"; }

systemd_version() { systemd_is=$(systemctl --version | sed -n '1s/^systemd \([0-9]*\).*/\1/p'); }

# journald: this host's logs are in systemd's journal.
journald() { [ -S /run/systemd/journal/socket ] && command -v journalctl >/dev/null 2>&1; }

# The number before the percentage: names of file systems and folders may have spaces.
free_kib() { df -Pk "$1" | sed -n '$s|^.* \(-\{0,1\}[0-9]\{1,\}\)  *[0-9]*[%-]  */.*$|\1|p' | sed 's/^-.*/0/'; }

# in_use PORT: something is bound to it, by TCP (state 0A: listening) or UDP.
in_use() {
    hexadecimal=$(printf '%04X' "$1")
    for table in tcp tcp6; do
        if sed 's/  */ /g' "/proc/net/$table" 2>/dev/null | grep -q "^ *[0-9]*: [0-9A-F]*:$hexadecimal [0-9A-F]*:[0-9A-F]* 0A "; then return 0; fi
    done
    for table in udp udp6; do
        if sed 's/  */ /g' "/proc/net/$table" 2>/dev/null | grep -q "^ *[0-9]*: [0-9A-F]*:$hexadecimal "; then return 0; fi
    done
    return 1
}

# The release's files, as a stream: from beside this script, or from inside the zip that this script came out of. `tail`
# may find its reader gone, and say so where SIGPIPE is ignored; a digest tells whether all came.
payload() {
    if [ -n "${VEDETTE_ARCHIVE:-}" ]; then
        tail -c +"$VEDETTE_ARCHIVE_START" "$VEDETTE_ARCHIVE" 2>/dev/null | head -c "$VEDETTE_ARCHIVE_BYTES"
    else
        cat "$here/payload.tar.gz"
    fi
}

# Sets id and release, once the archive is what SHA256SUMS and its signature say.
integrity() {
    step="checking the archive"
    pin=$(fact "$prefix/installed" release_key)
    site_pin=${site_key:-$(fact "$prefix/installed" site_key)}
    if [ -n "$home" ]; then
        id=${here##*/} release=$prefix/releases/${here##*/}
        whole "$release" || die 20 "$here is damaged: install it again from its archive"
        return 0
    fi
    for part in install.sh RELEASE release.pub; do
        (cd "$here" && grep "  $part\$" SHA256SUMS | sha256sum -c - >/dev/null 2>&1) ||
            die 20 "the archive is damaged: $part is not what SHA256SUMS says; copy and unpack it again"
    done
    [ -n "${VEDETTE_ARCHIVE:-}" ] || [ -f "$here/payload.tar.gz" ] || die 20 "the archive is damaged: it has no payload.tar.gz; copy and unpack it again"
    wanted=$(sed -n 's/  payload\.tar\.gz$//p' "$here/SHA256SUMS")
    [ "$(payload | sha256sum | cut -d ' ' -f 1)" = "$wanted" ] ||
        die 20 "the archive is damaged: payload.tar.gz is not what SHA256SUMS says; copy and unpack it again"
    if [ -f "$here/site.tar" ]; then
        [ "$(sha256sum <"$here/site.tar" | cut -d ' ' -f 1)" = "$(cat "$here/site.sha256")" ] ||
            die 20 "the archive is damaged: site.tar is not what site.sha256 says; copy and unpack it again"
    fi
    signature
    if [ -f "$here/site.tar" ]; then site_signer; fi
    id=$version-$(sha256sum "$here/SHA256SUMS" | cut -c 1-12)
    release=$prefix/releases/$id
}

# By the key that is given, else by the one that the first release brought; checked with the installed release's own
# program, so that nothing of an unknown release runs before; the first time with the host's OpenSSL.
signature() {
    key=${release_key:-$pin}
    if [ -z "$key" ]; then
        pin=$(cat "$here/release.pub")
        say "signature not checked, as no --release-key is given: later releases must be signed by $pin"
        return 0
    fi
    pin=$key
    tool=$prefix/current/runtime/bin/vedetted
    if [ -f "$prefix/current/verify.py" ] && "$tool" -X utf8 -I -S -c '' 2>/dev/null; then
        report=$("$tool" -X utf8 -I -S -B "$prefix/current/verify.py" "$key" "$here/SHA256SUMS" "$here/SHA256SUMS.sig" 2>&1) ||
            die 21 "refused: $report: this is not a release of those who made the installed one; if they have a new key, give it with --release-key"
    elif command -v openssl >/dev/null 2>&1 && command -v base64 >/dev/null 2>&1 && openssl pkeyutl -help 2>&1 | grep -q -- '-rawin'; then
        scratch=$(mktemp -d 2>/dev/null) || die 17 "${TMPDIR:-/tmp} cannot be written to: name another folder for temporary files with TMPDIR"
        printf '%s\n' '-----BEGIN PUBLIC KEY-----' "MCowBQYDK2VwAyEA${key#ed25519:}" '-----END PUBLIC KEY-----' >"$scratch/key"
        base64 -d "$here/SHA256SUMS.sig" >"$scratch/signature" 2>/dev/null || : # OpenSSL refuses what it leaves
        verdict=0
        openssl pkeyutl -verify -pubin -inkey "$scratch/key" -rawin -in "$here/SHA256SUMS" -sigfile "$scratch/signature" >/dev/null 2>&1 || verdict=$?
        rm -rf "$scratch"
        scratch=''
        [ $verdict = 0 ] || die 21 "refused: $here/SHA256SUMS is not signed by $key"
    else
        die 21 "the signature cannot be checked here (that takes OpenSSL 3 and base64): check it elsewhere, compare the zip's SHA-256, and install without --release-key"
    fi
    say "signed by $key"
}

# Who must have signed the site's part. `configuration` looks whether they did: that takes the release's own program.
site_signer() {
    if [ ! -f "$here/site.sig" ] || [ ! -f "$here/site.pub" ]; then
        die 21 "refused: site.tar is not signed: make the zip again with 'vedette member zip'"
    fi
    [ -z "$site_pin" ] || return 0
    [ -z "$release_key" ] || die 21 "refused: the site's part is signed by the region, whose key is not known here: give it with --site-key, as 'vedette member zip' prints it"
    site_pin=$(cat "$here/site.pub")
    public "$site_pin" || die 20 "the archive is damaged: site.pub is no public key; copy and unpack it again"
    say "the site's part is signed by $site_pin, which no --site-key names: later ones must be, too"
}

plan() {
    say "release $id to $release"
    if [ -f "$config" ]; then say "configuration $config stays as it is"; else say "configuration to $config"; fi
    for name in $addons; do say "with the add-on $name"; done
    say "data in $data_dir"
    say "command $command"
    if [ "$systemd" = no ]; then
        say "no unit, no user"
    elif [ "$start" = no ]; then
        say "user vedette and unit $UNITS/vedette.service, not started"
    else
        say "user vedette and unit $UNITS/vedette.service, started; syslog on $listen"
    fi
    if [ -d "$data_dir" ]; then folder=$data_dir; else folder=$parent; fi
    free=$(free_kib "$folder")
    if number "$free" && [ "$free" -lt 2097152 ]; then
        warn "$folder has $((free / 1024)) MiB free: set [raw_log] max_bytes (default 10GiB) below that in $config"
    fi
}

# --- files

# render FILE TARGET MODE: FILE with this installation's paths; of further sed expressions, those in $also.
render() {
    sed -e 's|/opt/vedette|@PREFIX@|g' -e 's|/etc/vedette|@CONFIG@|g' -e 's|/var/lib/vedette|@DATA@|g' \
        -e "s|@PREFIX@|$prefix|g" -e "s|@CONFIG@|$config_dir|g" -e "s|@DATA@|$data_dir|g" -e "s|127\\.0\\.0\\.1:514|$listen|g" \
        -e "$also" "$1" >"$2.tmp.$$"
    chmod "$3" "$2.tmp.$$"
    mv "$2.tmp.$$" "$2"
}

same() { [ "$(sha256sum <"$1")" = "$(sha256sum <"$2")" ]; }

# own FOLDER: makes FOLDER if need be, marked as ours when it is new, empty or was so, so that --purge removes no other's.
# The mark comes by a rename: in a folder of the user vedette no link is followed.
own() {
    if [ ! -d "$1" ]; then
        mkdir -p "$1"
        made="$1 $made"
    fi
    if [ -n "$(ls -A "$1")" ] && [ ! -e "$1/.vedette" ] || [ "$(marked "$1")" = "$prefix" ]; then return 0; fi
    printf '%s\n' "$prefix" >"$prefix/.mark.$$"
    mv -fT "$prefix/.mark.$$" "$1/.vedette" || {
        rm -f "$prefix/.mark.$$"
        warn "$1 is not marked as of $prefix: --purge will leave it"
    }
}

# marked FOLDER: the prefix of the installation that has it, if one does.
marked() {
    if [ -f "$1/.vedette" ]; then head -c 4096 "$1/.vedette" | sed -n '1{\,[^A-Za-z0-9._/-],d;p;}'; fi
}

# others FOLDER: another installation, which is still there, has it; sets owner, its prefix.
others() {
    owner=$(marked "$1")
    [ -n "$owner" ] && [ "$owner" != "$prefix" ] && [ -f "$owner/installed" ] &&
        grep -qxF -e "config_dir=$1" -e "data_dir=$1" "$owner/installed" 2>/dev/null
}

# root FOLDER: another installation has its program there; sets owner.
root() {
    owner=$1
    [ "$owner" != "$prefix" ] && [ "$(fact "$owner/installed" prefix)" = "$owner" ]
}

# around FOLDER: another installation has a folder below or above it; sets owner, its prefix.
around() {
    above=$1
    while [ "$above" != / ]; do
        above=$(dirname "$above")
        if others "$above" || root "$above"; then return 0; fi
    done
    if [ -d "$1" ]; then
        owner=$(find "$1" -type f \( -name .vedette -o -name installed \) 2>/dev/null | while IFS= read -r mark; do
            if others "${mark%/*}" || root "${mark%/*}"; then
                printf '%s\n' "$owner"
                break
            fi
        done)
        [ -z "$owner" ] || return 0
    fi
    return 1
}

# keep FILE: as it is before this run writes it, for undo to put back.
keep() {
    if [ -e "$1" ] || [ -L "$1" ]; then
        cp -pP "$1" "$1.was.$$"
        kept="$1 $kept"
    else
        made="$1 $made"
    fi
}

# point LINK TARGET: atomically.
point() {
    ln -s "$2" "$1.tmp.$$"
    mv -T "$1.tmp.$$" "$1"
}

# whole RELEASE: its files are as they came. The program is judged by its own note, as it holds the path of its loader.
whole() {
    [ -d "$1" ] && (cd "$1" && { grep -v '  runtime/bin/vedetted$' FILES.sha256 && cat .vedetted.sha256; } | sha256sum -c - >/dev/null 2>&1)
}

# Unpacks the release under another name, checks it, writes the loader's path into its program, renames and tries it.
unpack() {
    if whole "$release"; then
        try_out
        return 0
    fi
    step="unpacking to $release"
    changed=yes
    mkdir -p "$prefix/releases"
    new=$prefix/releases/.new.$$
    mkdir "$new"
    if ! report=$(payload | tar -xzof - -C "$new" 2>&1) || [ -n "$report" ]; then
        die 13 "unpacking failed, nothing was changed: $(printf '%s\n' "$report" | head -n 2)"
    fi
    (cd "$new" && sha256sum -c FILES.sha256 >/dev/null 2>&1) || die 20 "what was unpacked is not what FILES.sha256 says: is the disk in order?"
    read -r offset length loader <"$new/runtime/interpreter"
    path=$release/runtime/lib/$loader
    [ ${#path} -lt "$length" ] || die 2 "--prefix: too long a path"
    {
        printf '%s' "$path"
        dd if=/dev/zero bs=1 count=$((length - ${#path})) 2>/dev/null
    } | dd of="$new/runtime/bin/vedetted" bs=1 seek="$offset" conv=notrunc 2>/dev/null
    (cd "$new" && sha256sum runtime/bin/vedetted >.vedetted.sha256)
    sync -f "$new" 2>/dev/null || sync
    if [ -e "$release" ]; then
        if [ -d "$release/addons" ]; then cp -pPR "$release/addons" "$new/"; fi
        rm -rf "$prefix/releases/.old.$$"
        mv "$release" "$prefix/releases/.old.$$"
    fi
    mv "$new" "$release"
    new=$release
    try_out
    unpacked=$release new=''
    rm -rf "$prefix/releases/.old.$$"
}

try_out() {
    step="trying release $id"
    modules='cryptography.hazmat.primitives.asymmetric.ed25519, hyperscan, lmdb, msgpack, orjson, regex, ssl, zstandard'
    code=0
    report=$("$release/runtime/bin/vedetted" -X utf8 -I -S -B -c "import sys; sys.path.append(sys.argv[1]); import $modules" "$release/packages" 2>&1) || code=$?
    if [ $code = 0 ]; then report=$("$release/bin/vedette" version 2>&1) || code=$?; fi
    if [ $code = 132 ]; then # SIGILL
        report="this processor ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)) lacks an instruction that it is compiled with"
    fi
    [ $code = 0 ] || die 30 "release $id does not run on this host; nothing was switched: $report"
}

# Unpacks the add-ons into the release, and takes those out that it is to have no longer. A copy of each is checked: by
# the key of the release, with the program of the release, which is known to be good.
add() {
    restore
    for name in $addons; do
        if added "$name"; then continue; fi
        step="unpacking the add-on $name"
        changed=yes target=$release/addons/$name half=$release/addons/.new.$$
        eval "file=\$file_$name"
        mkdir -p "$half"
        if ! { member "$file" ADDON >"$half/ADDON" && member "$file" ADDON.sig >"$half/ADDON.sig" && member "$file" payload.tar.gz >"$half/payload.tar.gz"; }; then
            die 13 "the add-on $name cannot be unpacked, nothing was changed: is the disk full?"
        fi
        report=$("$release/runtime/bin/vedetted" -X utf8 -I -S -B "$release/verify.py" "$pin" "$half/ADDON" "$half/ADDON.sig" 2>&1) ||
            die 21 "refused: $file is not signed by $pin, as its release is; nothing was changed: take the file from where the release came from"
        if [ "$(fact "$half/ADDON" addon)/$(fact "$half/ADDON" release)" != "$name/$id" ] ||
            [ "$(sha256sum <"$half/payload.tar.gz" | cut -d ' ' -f 1)" != "$(fact "$half/ADDON" sha256)" ]; then
            die 20 "$file is another now than it was a moment ago; nothing was changed"
        fi
        if ! report=$(tar -xzof "$half/payload.tar.gz" -C "$half" 2>&1) || [ -n "$report" ]; then
            die 13 "unpacking the add-on $name failed, nothing was changed: $(printf '%s\n' "$report" | head -n 2)"
        fi
        rm -f "$half/payload.tar.gz" "$half/ADDON.sig"
        (cd "$half" && sha256sum -c FILES.sha256 >/dev/null 2>&1) || die 20 "what was unpacked of the add-on $name is not what FILES.sha256 says: is the disk in order?"
        sync -f "$half" 2>/dev/null || sync
        rm -rf "$target"
        made="$target $made"
        mv "$half" "$target"
        code=0
        report=$("$release/runtime/bin/vedetted" -X utf8 -I -S -B -c "import runpy, sys; runpy.run_path(sys.argv[1]); import $(fact "$target/ADDON" modules)" "$release/launch.py" 2>&1) || code=$?
        [ $code = 0 ] || die 30 "the add-on $name does not run on this host; nothing was switched: $report"
    done
    for name in $without; do
        if [ -d "$release/addons/$name" ]; then
            changed=yes
            rm -rf "$release/addons/.gone.$name"
            mv "$release/addons/$name" "$release/addons/.gone.$name"
        fi
    done
}

user() {
    step="making the user vedette"
    nologin=/usr/sbin/nologin
    if [ ! -x $nologin ]; then nologin=/sbin/nologin; fi
    getent group vedette >/dev/null || groupadd --system vedette
    if ! getent passwd vedette >/dev/null; then
        useradd --system --gid vedette --home-dir "$data_dir" --no-create-home --shell $nologin vedette
        made_user=yes
    fi
}

folders() {
    step="making folders"
    own "$config_dir"
    own "$data_dir"
    chmod 750 "$config_dir" "$data_dir"
    if [ "$systemd" = yes ]; then
        chgrp vedette "$config_dir"
        if [ "$(stat -c %U "$data_dir")" = vedette ]; then
            :
        elif [ -e "$data_dir/.vedette" ]; then
            chown -hR vedette:vedette "$data_dir"
        else
            chown vedette:vedette "$data_dir"
        fi
    fi
}

# foreign FOLDER: it holds what is not ours. A disk of its own with nothing on it does not.
foreign() {
    if [ ! -d "$1" ] || [ -e "$1/.vedette" ] || [ "$(stat -c %U "$1")" = vedette ]; then return 1; fi
    case $(ls -A "$1") in '' | lost+found) return 1 ;; esac
}

# place FILE NAME MODE [OWNER]: into the configuration folder; an operator's file stays, and this one goes beside it.
place() {
    if [ -L "$1" ] || [ ! -f "$1" ]; then die 20 "$1 is no plain file"; fi
    chmod "$3" "$1"
    if [ "$systemd" = yes ]; then chown "${4:-root}:vedette" "$1"; fi
    if [ ! -e "$config_dir/$2" ]; then
        changed=yes
        mv "$1" "$config_dir/$2"
        made="$config_dir/$2 $made"
    elif same "$1" "$config_dir/$2"; then
        keep "$config_dir/$2.new"
        rm -f "$1" "$config_dir/$2.new"
    else
        keep "$config_dir/$2.new"
        mv "$1" "$config_dir/$2.new"
        say "$config_dir/$2 stays as it is; this release's is beside it: $2.new"
    fi
}

# The configuration, and of a per-site archive its certificates and bundle, too.
configuration() {
    step="writing $config"
    also='' template=$release/vedette.toml
    if [ -f "$here/site.tar" ]; then
        site=$config_dir/.site.$$
        (umask 077 && mkdir "$site")
        report=$("$release/runtime/bin/vedetted" -X utf8 -I -S -B "$release/verify.py" "$site_pin" "$here/site.tar" "$here/site.sig" "$site" 2>&1) ||
            die 21 "refused: $report; if the region has a new key, give it with --site-key"
        template=$site/vedette.toml
        for file in "$site"/*; do
            case ${file##*/} in
                vedette.toml) ;;
                *.key | token) place "$file" "${file##*/}" 600 vedette ;;
                *) place "$file" "${file##*/}" 640 ;;
            esac
        done
    fi
    if [ -n "$region" ]; then
        also="/^\\[broker\\]/,/^#*\\[/s|^#*url = .*|url = \"$region\"|;/^\\[uplink\\]/,/^#*\\[/s|^#*type = .*|type = \"mqtt\"|"
    fi
    if [ -n "$token" ]; then
        (umask 077 && printf '%s\n' "$token" >"$config_dir/.token.$$")
        place "$config_dir/.token.$$" token 600 vedette
        also="$also;/^\\[enrolment\\]/,/^#*\\[/s|^#*token_file = .*|token_file = \"$config_dir/token\"|"
    fi
    if ! journald; then # syslog's files in place of the journal
        also="$also;/^# systemd's journal:/,/^\$/s/^[^#]/#&/"
        for key in '\[\[input' type name paths logsource from_start; do
            also="$also;/^# Files, read from/,/^\$/s/^#\($key\)/\1/"
        done
    fi
    render "$template" "$config_dir/.toml.$$" 640
    if [ -n "$site" ]; then rm -rf "$site"; fi
    place "$config_dir/.toml.$$" vedette.toml 640
    if [ -f "$config.new" ]; then
        key=$(sed -n 's/^trusted_keys = \["\(.*\)"\]$/\1/p' "$config.new")
        if [ -n "$key" ] && ! grep -v '^ *#' "$config" | grep -qF "$key"; then
            warn "$config does not trust the key of this release's starter rules: take trusted_keys over to use them"
        fi
    fi
    code=0
    report=$("$release/bin/vedette" check -c "$config" 2>&1) || code=$?
    case $code in
        0) ;;
        1) warn "$report" ;;
        *) die 31 "release $id does not take $config; nothing was switched: $report" ;;
    esac
    report=$("$release/runtime/bin/vedetted" -X utf8 -I -S -B "$release/probe.py" "$config" 2>&1) || warn "$report"
}

switch() {
    step="switching to release $id"
    if [ "$before" != "releases/$id" ]; then
        changed=yes
        switched=yes
        if [ -n "$before" ]; then # first, so that power lost in between loses no release that was good
            keep "$prefix/previous"
            point "$prefix/previous" "$before"
            if [ -n "$within" ]; then guard "$within" yes; fi # before the switch: no kill leaves the new one unwatched
        fi
        point "$prefix/current" "releases/$id"
    fi
    mkdir -p "$(dirname "$command")"
    if [ -e "$command" ] && [ ! -L "$command" ]; then
        warn "$command is there and not ours; call $prefix/current/bin/vedette"
    elif ! ours "$command"; then
        keep "$command"
        point "$command" "$prefix/current/bin/vedette"
    fi
    keep "$prefix/installed"
    printf '%s\n' "prefix=$prefix" "config_dir=$config_dir" "data_dir=$data_dir" "listen=$listen" "systemd=$systemd" "release_key=$pin" "site_key=$site_pin" >"$prefix/installed.tmp.$$"
    mv "$prefix/installed.tmp.$$" "$prefix/installed"
}

# guard SECONDS CONFIRM: the release $id is watched for so long, by the script of the one before, which knows nothing of
# it. CONFIRM: it must say of itself, within that time, that it works.
guard() {
    guarded=yes
    script=$prefix/$before/install.sh
    grep -q '^guard()' "$script" || script=$release/install.sh
    cp "$script" "$prefix/watch.sh.tmp.$$"
    mv "$prefix/watch.sh.tmp.$$" "$prefix/watch.sh"
    printf '%s\n' "seconds=$1" "before=$before" "id=$id" "confirm=$2" >"$prefix/watch.tmp.$$"
    mv "$prefix/watch.tmp.$$" "$prefix/watch"
    [ "$systemd" = yes ] && [ "$start" = yes ] || return 0
    systemctl stop vedette-watch 2>/dev/null || :
    systemctl enable vedette-watch >/dev/null 2>&1 || : # a reboot belongs to many an upgrade
    systemctl start vedette-watch && say "watched for $1 s: journalctl -u vedette-watch"
}

# remnants WHOSE: removes the temporary files of this run ($$), or of runs that were killed ('[0-9]*').
remnants() {
    # shellcheck disable=SC2086
    rm -rf "$config_dir"/.site.$1 "$config_dir"/.token.$1 "$config_dir"/.toml.$1 "$config_dir"/.toml.$1.tmp.$1 \
        "$prefix"/*.tmp.$1 "$prefix"/.mark.$1 "$command".tmp.$1
}

# Deletes all releases but this one and the one before.
prune() {
    remnants '[0-9]*'
    rm -f "$prefix/.first" "$prefix"/*.was.[0-9]* "$config_dir"/*.new.was.[0-9]* "$command".was.[0-9]*
    rm -rf "$prefix"/releases/*/addons/.new.* "$prefix"/releases/*/addons/.gone.*
    for folder in "$prefix"/releases/* "$prefix"/releases/.new.* "$prefix"/releases/.old.*; do
        case releases/${folder##*/} in
            "$(readlink "$prefix/current")" | "$(readlink "$prefix/previous" 2>/dev/null || :)") ;;
            *) rm -rf "$folder" ;;
        esac
    done
}

# label: SELinux types as the policy has them for these places.
label() {
    if command -v restorecon >/dev/null 2>&1 && command -v selinuxenabled >/dev/null 2>&1 && selinuxenabled; then
        step="labelling files for SELinux"
        set -- "$prefix" "$config_dir" "$data_dir"
        if [ "$systemd" = yes ]; then set -- "$@" "$UNITS"/vedette*; fi
        restorecon -R "$@" || warn "restorecon failed; where SELinux is enforcing: restorecon -R $*"
    fi
}

# --- systemd

# put FILE TARGET: a unit file, told in $changed when it is another than before.
put() {
    render "$1" "$2.new" 644
    if [ -e "$2" ] && same "$2.new" "$2"; then
        rm -f "$2.new"
    else
        changed=yes
        mv "$2.new" "$2"
        case $2 in *.socket) sockets_changed=yes ;; esac
    fi
}

# unfinished: removes what `put` leaves when it is interrupted.
unfinished() {
    rm -f "$UNITS"/vedette*.new "$UNITS"/vedette*.new.tmp.* "$UNITS"/vedette.service.d/50-*.new "$UNITS"/vedette.service.d/50-*.new.tmp.*
}

# units RELEASE: its unit files, with the drop-ins that this host's systemd understands.
units() {
    also=''
    for group in adm systemd-journal; do
        getent group $group >/dev/null || also="$also;/^SupplementaryGroups=$group\$/d"
    done
    sockets_changed=no
    for unit in $SERVICE_FILES; do put "$1/$unit" "$UNITS/$unit"; done
    mkdir -p "$UNITS/vedette.service.d"
    systemd_version
    for file in "$UNITS"/vedette.service.d/50-since-*.conf "$UNITS"/vedette.service.d/50-before-*.conf; do
        if [ -e "$file" ] && [ ! -e "$1/systemd/${file##*/50-}" ]; then rm -f "$file"; fi
    done
    for file in "$1"/systemd/*.conf; do
        name=${file##*/} wanted=${file##*-}
        wanted=${wanted%.conf}
        case $name in
            since-*) [ "$systemd_is" -ge "$wanted" ] || continue ;;
            *) [ "$systemd_is" -lt "$wanted" ] || continue ;;
        esac
        put "$file" "$UNITS/vedette.service.d/50-$name"
    done
    systemctl daemon-reload
}

# Writes and starts the units. What the operator stopped and disabled stays so.
service() {
    step="starting the agent"
    if [ -e "$UNITS/vedette.service" ] && [ ! -e "$prefix/.first" ]; then first=no; else first=yes; fi
    if [ -e "$UNITS/vedette-upgrade.path" ] && [ $first = no ]; then upgrades=old; else upgrades=new; fi
    if [ $first = yes ]; then # until all is enabled and started, whoever kills this run
        : >"$prefix/.first"
        made="$prefix/.first $made"
    fi
    was=$(systemctl is-enabled vedette 2>/dev/null || :)/$(systemctl is-active vedette 2>/dev/null || :)
    units_written=yes
    units "$release"
    label
    if [ $first = yes ]; then systemctl enable vedette vedette-udp.socket vedette-tcp.socket >/dev/null 2>&1; fi
    if [ $upgrades = new ]; then systemctl enable vedette-upgrade.path >/dev/null 2>&1; fi
    [ "$start" = yes ] || return 0
    if [ "$was" = disabled/inactive ] && [ "$force" = no ] && [ $first = no ]; then
        say "the agent was stopped and disabled, and stays so"
        start=no
        return 0
    fi
    sockets ||
        die 32 "the sockets for $listen cannot be opened: $(systemctl status --no-pager -n 3 vedette-udp.socket 2>&1 | tail -n 2); choose another with --listen HOST:PORT, and in $config"
    if [ $upgrades = new ]; then systemctl start vedette-upgrade.path || warn "vedette-upgrade.path does not start: no upgrades by the fleet"; fi
    if [ "$changed" = yes ] || [ "$force" = yes ]; then restart; else systemctl --no-block start vedette >/dev/null 2>&1 || :; fi
    if healthy; then return 0; fi
    report=$(journalctl -u vedette -n 20 --no-pager 2>&1 || :)
    printf '%s\n' "$report" >&2 || :
    note "$report"
    if [ -n "$before" ] && [ "$before" != "releases/$id" ]; then
        die 32 "release $id did not come up; going back to ${before#releases/}"
    fi
    die 32 "the agent did not come up: see the lines above and $log"
}

# Opens the sockets. Those that have another address now are closed before, with the agent that holds them; without it, as
# systemd opens no socket of a service that runs.
sockets() {
    if [ "$sockets_changed" = yes ]; then systemctl stop vedette-udp.socket vedette-tcp.socket vedette 2>/dev/null || :; fi
    systemctl start vedette-udp.socket vedette-tcp.socket
}

# The process that is there now does not count in `healthy`: it may take a while to end, and answers until then.
restart() {
    stopping=$(main_pid)
    systemctl --no-block restart vedette >/dev/null 2>&1 || :
}

# Within a minute the agent answers for itself, and it is the same process a second later. Three crashes are enough to know
# that it does not. What is not OK of it (exit code 1: an input that does not work, say) has ten seconds to come right.
healthy() {
    tries=0 since=$(restarts) patience=5
    while [ $tries -lt 60 ]; do
        code=0
        report=$("$prefix/current/bin/vedette" status -c "$config" 2>&1) || code=$?
        case $code$report in
            0*) patience=0 ;;
            "1NOT OK: no agent runs"*) code=2 ;;
            1*) patience=$((patience - 1)) ;;
        esac
        if [ $code -le 1 ]; then
            process=$(main_pid)
            sleep 1
            if [ "$process" = 0 ] || [ "$process" = "$stopping" ] || [ "$(main_pid)" != "$process" ]; then
                :
            elif [ $patience -le 0 ]; then
                [ $code = 0 ] || warn "the agent runs, and is $(printf '%s\n' "$report" | head -n 1)"
                return 0
            fi
        fi
        count=$(restarts)
        if [ "${count:-0}" -lt "${since:-0}" ]; then since=$count; fi # set to 0 as the agent was started by hand
        if [ $((${count:-0} - ${since:-0})) -ge 3 ]; then return 1; fi
        tries=$((tries + 1))
        sleep 1
    done
    return 1
}

# 0: there is none.
main_pid() { systemctl show -p MainPID vedette | sed -n 's/^MainPID=\([0-9]\{1,\}\)$/\1/p' | grep . || echo 0; }

# How often systemd started the agent again by itself; before systemd 235 nothing.
restarts() { systemctl show -p NRestarts vedette | sed -n 's/^NRestarts=\([0-9]\{1,\}\)$/\1/p'; }

# Run by vedette-watch.service after an upgrade: goes back when the agent crashes three times or stays away for 30 s.
watch() {
    trap - HUP INT TERM # systemd ends it by SIGTERM, which is no failure
    guarded
    [ -d "$prefix/${before:-none}" ] || exit 0
    waited=0
    while [ "$(readlink "$prefix/current" 2>/dev/null || :)" != "releases/$id" ]; do
        if [ $waited -ge 60 ]; then # the upgrade came to nothing, or a watch was interrupted as it went back
            rm -f "$prefix/watch"
            exit 0
        fi
        sleep 1
        waited=$((waited + 1))
    done
    log=$log_file crashes=0 away=0 process=$(main_pid) base=$(restarts) elapsed=0
    while [ $elapsed -lt "$seconds" ]; do
        sleep 2
        elapsed=$((elapsed + 2))
        [ "$(readlink "$prefix/current" 2>/dev/null || :)" = "releases/$id" ] || exit 0
        case $(systemctl is-active vedette || :) in
            active) away=0 ;;
            inactive) exit 0 ;; # by an operator's hand: Restart=always leaves no other way
            *) away=$((away + 2)) ;;
        esac
        now=$(main_pid) count=$(restarts)
        if [ -n "$base" ] && [ -n "$count" ]; then
            if [ "$count" -lt "$base" ]; then base=$count; fi # an operator's restart sets it to 0
            crashes=$((count - base))
        elif [ "$now" != "$process" ] && [ "$now" != 0 ]; then
            crashes=$((crashes + 1))
            process=$now
        fi
        verdict
        if [ $crashes -ge 3 ] || [ $away -ge 30 ]; then
            wrong="it was started again $crashes times and away for $away s"
        elif [ "$confirm" = yes ] && [ $elapsed -ge "$seconds" ]; then
            wrong="it did not confirm itself within $seconds s"
        fi
        if [ -n "$wrong" ]; then
            lock 60
            [ "$(readlink "$prefix/current" 2>/dev/null || :)" = "releases/$id" ] || exit 0
            warn "release $id: $wrong, $elapsed s after the upgrade: going back to ${before#releases/}"
            rm -f "$prefix/watch" # first: the older release's own script would take it up at the next boot, and delete itself
            set +e # whatever fails from here on, be it for a full disk: the agent is to be started
            back_to "$before"
            [ "$(readlink "$prefix/current")" = "$before" ] || die 1 "$prefix/current cannot be moved to $before"
            rm -rf "$prefix/previous" "$prefix/releases/$id"
            answer back 0 "$wrong"
            if healthy; then say "release ${before#releases/} runs again"; else warn "release ${before#releases/} does not come up either: journalctl -u vedette"; fi
            exit 0
        fi
    done
    rm -f "$prefix/watch"
    say "release $id stayed up for $elapsed s"
}

# What is watched, from $prefix/watch.
guarded() {
    id=$(fact "$prefix/watch" id) seconds=$(fact "$prefix/watch" seconds) before=$(fact "$prefix/watch" before)
    confirm=$(fact "$prefix/watch" confirm) wrong=''
    number "$seconds" || seconds=300
}

# verdict: what the new release says of itself: ends the watch when it works, sets $wrong when it does not.
verdict() {
    if [ "$confirm" != yes ] || [ "$(fact "$data_dir/upgrade/verdict" id)" != "$id" ]; then return 0; fi
    case $(fact "$data_dir/upgrade/verdict" verdict) in
        confirmed)
            rm -f "$prefix/watch"
            answer confirmed 0 ''
            say "release $id has confirmed itself"
            if [ "$systemd" = yes ]; then exit 0; fi
            supervisor
            ;;
        unfit) wrong="it says: $(fact "$data_dir/upgrade/verdict" reason | cut -c 1-300)" ;;
    esac
}

# answer STATE CODE REASON: to the agent, about the release $id that it asked for.
answer() {
    mkdir -p "$answers" 2>/dev/null || return 0
    nonce=$(fact "$data_dir/upgrade/request" nonce | tr -cd 0-9a-f)
    { printf 'id=%s\nnonce=%s\nstate=%s\ncode=%s\nreason=%s\n' "$id" "$nonce" "$1" "$2" "$(printf %s "$3" | tr '\n' ' ')" >"$answers/answer.tmp.$$" &&
        mv "$answers/answer.tmp.$$" "$answers/answer"; } 2>/dev/null || rm -f "$answers/answer.tmp.$$"
}

# staged: installs the release that the agent has fetched, if those have signed it who made the one that is installed.
staged() {
    step="taking the release that the agent has fetched" request=$data_dir/upgrade/request
    id=$(fact "$request" id)
    case $id in
        '' | *[!0-9A-Za-z.+_~-]*) exit 0 ;;
    esac
    if [ "$(readlink "$prefix/current" 2>/dev/null || :)" = "releases/$id" ]; then exit 0; fi # and is watched
    if [ ! -w "$prefix" ]; then
        refused 17 "$prefix cannot be written to: a read-only file system, or another user's"
    fi
    log=$log_file
    rm -rf "$prefix/.staged"
    scratch=$prefix/.staged
    if ! report=$( (umask 077 && mkdir "$scratch") 2>&1); then refused 13 "$report"; fi
    code=0
    report=$("$prefix/current/runtime/bin/vedetted" -X utf8 -I -S -B "$prefix/current/take.py" "$data_dir/upgrade" "$scratch" \
        "$(fact "$prefix/installed" release_key)" 2>&1) || code=$?
    [ $code != 13 ] || refused 13 "$report"
    [ $code = 0 ] || refused 21 "$report"
    set -- --upgrade --allow-downgrade --prefix "$prefix" --log "$log_file" --within "$(fact "$scratch/request" within)"
    if [ "$systemd" = no ]; then set -- "$@" --no-systemd; fi
    sh "$scratch/install.sh" "$@" >"$scratch/report" 2>&1 9>&- || code=$?
    [ $code = 0 ] || refused $code "$(grep '^vedette: ' "$scratch/report" | grep -v '^vedette: release .* runs again$' | tail -n 1 | cut -c 10-500)"
    answer installed 0 ''
}

# refused CODE REASON: ends `staged`.
refused() {
    say "release $id is not installed: $2"
    answer refused "$1" "$2"
    if [ "$systemd" = no ]; then rm -f "$request"; fi
    exit 0
}

# supervisor: the copy of this script that --supervise is to be run by, of the release in force.
supervisor() {
    if [ -f "$prefix/supervise.sh" ] && same "$prefix/current/install.sh" "$prefix/supervise.sh"; then return 0; fi
    cp "$prefix/current/install.sh" "$prefix/supervise.sh.tmp.$$"
    mv "$prefix/supervise.sh.tmp.$$" "$prefix/supervise.sh"
}

# supervise: what systemd, vedette-upgrade and vedette-watch do where there is systemd. Ends with the agent on TERM.
supervise() {
    [ -f "$prefix/installed" ] || die 42 "nothing is installed in $prefix"
    [ "$systemd" = no ] || die 2 "--supervise: systemd runs the agent of $prefix"
    log=$log_file child='' ended=no VEDETTE_UPGRADES=$answers
    export VEDETTE_UPGRADES
    trap '[ -z "$child" ] || kill -HUP "$child" 2>/dev/null || :' HUP
    trap 'ended=yes; [ -z "$child" ] || kill "$child" 2>/dev/null || :' INT TERM
    while [ $ended = no ]; do
        step="supervising the agent"
        guarded
        if [ -n "$id" ] && [ "$(readlink "$prefix/current")" != "releases/$id" ]; then rm -f "$prefix/watch"; fi
        if [ -e "$prefix/watch" ]; then
            starts=$(grep -c '^start$' "$prefix/watch" || :)
            if [ "$starts" -ge 3 ]; then
                go_back "it ended $starts times before it confirmed itself"
            else
                printf 'start\n' >>"$prefix/watch" || :
            fi
        fi
        "$prefix/current/bin/vedette" run -c "$config" &
        child=$! elapsed=0 code=0 leaving=no
        while [ $ended = no ] && [ $leaving = no ] && kill -0 "$child" 2>/dev/null; do
            sleep 1 &
            wait $! || :
            elapsed=$((elapsed + 1))
            supervised
        done
        tries=0
        while kill -0 "$child" 2>/dev/null && [ $tries -lt 60 ]; do
            sleep 1 &
            wait $! || :
            tries=$((tries + 1))
        done
        kill -KILL "$child" 2>/dev/null || :
        wait "$child" || code=$?
        child=''
        if [ $ended = no ]; then sleep 1; fi
    done
    told=yes
    exit "$code"
}

# supervised: one look at a running agent.
supervised() {
    guarded
    if [ -e "$prefix/watch" ]; then
        verdict
        if [ -z "$wrong" ] && [ "$elapsed" -ge "$seconds" ]; then wrong="it did not confirm itself within $seconds s"; fi
        if [ -n "$wrong" ]; then
            go_back "$wrong"
            leave
        fi
    elif [ -f "$data_dir/upgrade/request" ]; then
        was=$(readlink "$prefix/current")
        sh "$0" --staged --prefix "$prefix" --no-systemd || :
        if [ "$(readlink "$prefix/current")" != "$was" ]; then leave; fi
    fi
}

# leave: the agent that runs is to end, for another release.
leave() {
    leaving=yes
    kill "$child" 2>/dev/null || :
}

# go_back REASON: from the release that is watched to the one before it.
go_back() {
    warn "release $id: $1: going back to ${before#releases/}"
    (
        lock 60
        point "$prefix/current" "$before"
        rm -rf "$prefix/watch" "$prefix/previous" "$prefix/releases/$id"
    ) || :
    answer back 0 "$1"
    rm -f "$data_dir/upgrade/request"
}

# back_to TARGET: the units of releases/ID, `current` on it, and the agent restarted.
back_to() {
    point "$prefix/current" "$1"
    if [ "$systemd" = yes ]; then
        units_written=yes
        units "$prefix/$1"
        [ "$start" = yes ] || return 0
        [ "$sockets_changed" = no ] || sockets || warn "the sockets for $listen cannot be opened: systemctl status vedette-udp.socket"
        restart
    fi
}

# --- running

# What a run goes by: looked at before the lock, as a dry run takes none, and held against it afterwards.
grounds() {
    readlink "$prefix/current" || :
    readlink "$prefix/previous" || :
    cat "$prefix/installed" 2>/dev/null || :
}

# alone: locks, unless another run has changed the installation since this one first looked at it.
alone() {
    lock 0
    [ "$(grounds)" = "$looked" ] || die 40 "another run of install.sh has just changed $prefix: run this again"
}

# lock SECONDS: for this run alone; waits so long for another one to end.
lock() {
    writable "$prefix" || die 17 "$folder cannot be written to (a read-only file system, or no folder?)"
    mkdir -p "$prefix"
    waited=0
    exec 9>>"$prefix/.lock"
    while ! flock -n 9; do
        [ "$waited" -lt "$1" ] || die 40 "another run of install.sh is at work in $prefix"
        waited=$((waited + 1))
        sleep 1
    done
}

# At the end, whatever it is: temporary files go, and what a run has done that did not come to its end is undone. A
# program that failed without a message of ours gives exit code 1, since its own code means something else here.
clean() {
    result=$?
    trap '' HUP INT TERM
    set +e
    if [ $result != 0 ] && [ "$told" = no ]; then
        printf '%s\n' "vedette: failed while $step${log:+; see $log}" >&2 || :
        note "failed while $step (exit code $result)"
        result=1
    fi
    if [ -n "$command" ]; then remnants $$; fi
    if [ $units_written = yes ]; then unfinished; fi
    if [ -n "$new" ]; then rm -rf "$new"; fi
    if [ -n "$scratch" ]; then rm -rf "$scratch"; fi
    if [ -d "$prefix/releases/.old.$$" ] && [ ! -e "$release" ]; then mv "$prefix/releases/.old.$$" "$release"; fi
    if [ "$complete" = no ]; then undo; fi
    for file in $kept; do rm -f "$file.was.$$"; done
    exit $result
}

# What a run that did not come to its end has done. A rollback is undone as an upgrade is.
undo() {
    for file in $kept; do mv -fT "$file.was.$$" "$file"; done
    if [ -n "$release" ]; then
        rm -rf "$release/addons/.new.$$"
        restore
    fi
    if [ "$guarded" = yes ]; then rm -f "$prefix/watch"; fi
    if [ -n "$before" ]; then
        recorded # the units are written for what was installed, not for what this run was told
        if [ $units_written = yes ] || [ $switched = yes ]; then
            back_to "$before"
            if [ "$systemd" = no ]; then
                :
            elif [ "$start" = yes ] && healthy; then
                say "release ${before#releases/} runs again"
            elif [ "$start" = yes ]; then
                warn "release ${before#releases/} does not come up either: journalctl -u vedette"
            fi
            [ "$systemd" = no ] || [ -z "$wanted_listen" ] || named || warn "$config does not name $listen, where the sockets are again: write it back"
        fi
        # A full disk may keep `current` from moving back.
        [ -z "$unpacked" ] || [ "$unpacked" = "$prefix/$(readlink "$prefix/current")" ] || rm -rf "$unpacked"
    else
        if [ $units_written = yes ]; then remove_units; fi
        rm -rf "$prefix/releases" "$prefix/current" "$prefix/installed"
    fi
    for created in $made; do rm -rf "$created"; done
    [ -z "$release" ] || rmdir "$release/addons" 2>/dev/null
    if [ $made_user = yes ]; then userdel vedette; fi
    if [ -z "$before" ]; then
        rm -f "$prefix/.lock"
        rmdir "$prefix/bin" "$prefix" 2>/dev/null
        say "nothing was installed"
    fi
}

# older VERSION OTHER: it comes before OTHER: by their numbers, from the left; with equal numbers a candidate (1.0rc1)
# comes before its release.
older() {
    left=${1%%[!0-9.]*} right=${2%%[!0-9.]*}
    if [ "$1" != "$left" ] && [ "$2" = "$right" ]; then candidate=yes; else candidate=no; fi
    while [ -n "$left$right" ]; do
        l=${left%%.*} r=${right%%.*}
        number "${l:=0}" && number "${r:=0}" || return 1
        [ "$l" -ge "$r" ] || return 0
        [ "$l" -le "$r" ] || return 1
        case $left in *.*) left=${left#*.} ;; *) left='' ;; esac
        case $right in *.*) right=${right#*.} ;; *) right='' ;; esac
    done
    [ $candidate = yes ]
}

install() {
    preflight
    before=$(readlink "$prefix/current" 2>/dev/null || :)
    if [ "$upgrade" = yes ]; then
        [ -n "$before" ] || die 42 "--upgrade: nothing is installed in $prefix"
        present=$(fact "$prefix/current/RELEASE" version)
        [ "$downgrade" = yes ] || ! older "$version" "$present" ||
            die 43 "--upgrade: $version is older than the installed $present: --rollback goes back to the release before; to go to this one add --allow-downgrade"
    fi
    plan
    if [ "$dry_run" = yes ]; then
        say "nothing was done (--dry-run)"
        return 0
    fi
    umask 022
    alone
    log=$log_file complete=no
    note "install.sh of $version: ${before:+upgrade of ${before#releases/} to }$id"
    unpack
    add
    if [ "$systemd" = yes ]; then user; fi
    folders
    configuration
    switch
    if [ "$systemd" = yes ]; then service; else label; fi
    complete=yes
    prune
    if [ "$switched" = yes ] && [ -z "$within" ]; then
        rm -f "$prefix/watch" # that of the release before
        if [ "$systemd" = yes ] && [ "$start" = yes ] && [ -n "$before" ] && [ "$grace" -gt 0 ]; then guard "$grace" no; fi
    fi
    if [ "$systemd" = no ] && [ ! -e "$prefix/watch" ]; then supervisor; fi
    if [ "$changed" = no ]; then say "all is in place, nothing changed"; else say "installed $id"; fi
    if [ "$systemd" = no ]; then
        say "start it: $command run -c $config; with upgrades by its fleet: sh $prefix/supervise.sh --supervise"
    elif [ "$start" = no ]; then
        say "start it: systemctl start vedette"
    else
        say "see it: $command status"
    fi
}

rollback() {
    step="rolling back"
    one_under_systemd
    before=$(readlink "$prefix/current" 2>/dev/null || :)
    target=$(readlink "$prefix/previous" 2>/dev/null || :)
    if [ "$target" = "$before" ] || ! whole "$prefix/${target:-none}"; then die 41 "there is no release before ${before#releases/} to go back to"; fi
    if [ "$dry_run" = yes ]; then
        say "${before#releases/} would go, ${target#releases/} come back"
        return 0
    fi
    umask 022
    alone
    log=$log_file release=$prefix/$target id=${target#releases/}
    try_out
    code=0
    report=$("$release/bin/vedette" check -c "$config" 2>&1) || code=$?
    [ $code -le 1 ] || die 31 "release $id does not take $config; nothing was switched: $report"
    if [ "$systemd" = yes ]; then systemctl stop vedette-watch 2>/dev/null || :; fi
    rm -f "$prefix/watch"
    complete=no switched=yes
    keep "$prefix/previous"
    back_to "$target"
    point "$prefix/previous" "$before"
    if [ "$systemd" = yes ] && [ "$start" = yes ] && ! healthy; then
        die 32 "release $id did not come up; going back to ${before#releases/}: journalctl -u vedette"
    fi
    complete=yes
    say "rolled back from ${before#releases/} to $id"
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

# vedette.service goes last: it tells whose they are, to a second run when this one is interrupted.
remove_units() {
    for unit in $SERVICE_FILES; do systemctl disable "$unit" >/dev/null 2>&1 || :; done
    systemctl stop vedette-upgrade.path vedette-watch vedette-udp.socket vedette-tcp.socket vedette 2>/dev/null || :
    unfinished
    rm -f "$UNITS"/vedette.service.d/50-since-*.conf "$UNITS"/vedette.service.d/50-before-*.conf
    rmdir "$UNITS/vedette.service.d" 2>/dev/null || :
    for unit in $SERVICE_FILES; do [ "$unit" = vedette.service ] || rm -f "$UNITS/$unit"; done
    rm -f "$UNITS/vedette.service"
    systemctl daemon-reload
    systemctl reset-failed vedette vedette-udp.socket vedette-tcp.socket 2>/dev/null || :
}

# owners: sets units, whose they are: ours, others or none; then owner, the prefix of the others.
owners() {
    if [ ! -e "$UNITS/vedette.service" ]; then
        units=none
    elif grep -qF "=$prefix/current/" "$UNITS/vedette.service"; then
        units=ours
    else
        units=others
        owner=$(sed -n 's|^ExecStart=\(/.*\)/current/bin/vedette .*|\1|p' "$UNITS/vedette.service" | head -n 1)
    fi
}

# systemd runs one installation: the names of its units are fixed.
one_under_systemd() {
    [ "$systemd" = yes ] || return 0
    owners
    [ $units != others ] ||
        die 19 "systemd runs the installation in ${owner:-another place} (see $UNITS/vedette.service) and not one in $prefix: remove that one first, or give --no-systemd and folders of its own${owner:+; to upgrade that one: --prefix $owner}"
}

# mine FOLDER GIVEN: FOLDER may be purged: it was given by name, or its mark names this prefix, and it is not of another
# installation. A default name alone does not tell that: the prefix may be mistyped. One that an operator has marked by
# hand, before it was used, has no name in it.
mine() {
    if others "$1" || around "$1"; then return 1; fi
    others "$1" || :
    [ -n "$2" ] || [ "$owner" = "$prefix" ] || { [ -z "$owner" ] && [ -e "$prefix/installed" ]; }
}

uninstall() {
    step=uninstalling
    owners
    if [ ! -e "$prefix/installed" ] && [ ! -e "$prefix/releases" ]; then
        say "nothing is installed in $prefix"
    fi
    if [ "$systemd" = yes ] && [ $units = others ]; then
        warn "the units are those of another installation (${owner:+in $owner, }see $UNITS/vedette.service) and stay: is --prefix as it was?"
    fi
    purge_config=no purge_data=no
    if [ "$purge" = yes ]; then
        if mine "$config_dir" "$wanted_config_dir"; then purge_config=yes; fi
        if mine "$data_dir" "$wanted_data_dir"; then purge_data=yes; fi
    fi
    if [ "$dry_run" = yes ]; then
        say "program $prefix, command $command$([ "$systemd" = no ] || [ $units = others ] || printf ', units %s' "$UNITS/vedette*") would go"
        [ $purge_config = no ] || say "configuration $config_dir would go"
        [ $purge_data = no ] || say "data $data_dir would go"
        return 0
    fi
    if [ -d "$prefix" ]; then
        alone
        if [ "$purge" = no ] && [ "$systemd" = yes ]; then log=$log_file; fi
    fi
    if [ "$systemd" = yes ] && [ $units != others ]; then remove_units; fi
    for link in "$COMMAND" "$prefix/bin/vedette"; do
        ! ours "$link" || rm -f "$link" || warn "$link cannot be removed"
    done
    remnants '[0-9]*'
    rm -rf "$prefix/releases" "$prefix/current" "$prefix/previous" "$prefix/installed" "$prefix"/*.was.[0-9]* "$prefix/.first" "$prefix/watch" "$prefix/watch.sh" "$prefix/supervise.sh" "$prefix/.staged" "$prefix/.lock" "$prefix/install.log"
    if [ "$purge" = yes ]; then
        purge
    else
        say "configuration $config_dir and data $data_dir stay; --uninstall --purge removes them"
    fi
    rmdir "$prefix/bin" "$prefix" 2>/dev/null || :
    say "uninstalled"
}

# purge: configuration and data; user and log are of the installation that has the data.
purge() {
    if [ "$purge_config" = yes ]; then remove "$config_dir"; else not_mine "$config_dir" --config-dir; fi
    if [ "$purge_data" = yes ]; then remove "$data_dir"; else not_mine "$data_dir" --data-dir; fi
    if [ "$purge_data" = no ] || [ "$units" = others ]; then
        [ -z "$wanted_log" ] || rm -f "$log_file"
        return 0
    fi
    rm -f "$log_file"
    if [ "$systemd" = yes ] && getent passwd vedette >/dev/null; then userdel vedette; fi
}

not_mine() {
    if others "$1"; then
        warn "$1 stays: it is of the installation in $owner"
    elif around "$1"; then
        warn "$1 stays: it lies in a folder of the installation in $owner, or holds one"
    elif [ -d "$1" ]; then
        warn "$1 stays, as nothing tells that it belongs to $prefix: if it does, add $2 $1"
    fi
}

main() {
    PATH=${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin # `su` leaves root without them
    here=$(cd "$(dirname "$0")" && pwd -P)
    log='' told=no complete=yes changed=no switched=no units_written=no made='' kept='' made_user=no guarded=no
    new='' site='' unpacked='' before='' release='' step=starting prefix='' config_dir='' also='' stopping='' scratch='' command=''
    trap clean EXIT
    trap 'exit 1' HUP INT TERM
    trap : PIPE # `install.sh | head`: what is under way goes on
    arguments "$@"
    "$action"
}

main "$@"
