#!/bin/sh
# Installs, upgrades, rolls back and removes the Vedette agent. Downloads nothing, asks nothing, needs no Python and no
# unzip on the host:
#
#   sudo sh vedette-0.1.0-linux-x86_64.zip [OPTION...]          the zip is a shell script, too
#   unzip vedette-0.1.0-linux-x86_64.zip && sudo sh vedette/install.sh [OPTION...]
#   sudo sh /opt/vedette/current/install.sh --rollback | --uninstall [--purge]
#
# It acts on the installation that --prefix names, else on the one that it is part of (PREFIX/current/install.sh), else,
# out of a zip, on /opt/vedette. Program, configuration and data of another installation on the host are never touched:
# PREFIX/installed says which prefix it is of, FOLDER/.vedette which prefix has the folder.
#
# Every option can also be given by a variable, for provisioning without arguments; an option wins:
#
#   VEDETTE_REGION  VEDETTE_LISTEN  VEDETTE_PREFIX  VEDETTE_CONFIG_DIR  VEDETTE_DATA_DIR  VEDETTE_RELEASE_KEY
#   VEDETTE_SITE_KEY  VEDETTE_GRACE  VEDETTE_LOG  VEDETTE_TOKEN  VEDETTE_WITH  VEDETTE_WITHOUT  as the options of these names
#   VEDETTE_NO_SYSTEMD=1  VEDETTE_NO_START=1  as these options
#
# Under the prefix lie releases/VERSION-DIGEST, each whole, and the links `current` and `previous`. Here a release is
# looked at, unpacked under another name, checked against its digests, renamed and tried on this host. What follows is
# done by its own Python, in installer/: add-ons, configuration, the switch of `current`, units, the start, the way back.
# Removing is done here, whatever is left of a program.
#
# Exit codes are those of docs/install.md.

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
Directories given once are used again by the next run with the same prefix. Where there is no systemd,
'sh PREFIX/supervise.sh --supervise' runs the agent, with upgrades by its fleet.
END
}

MINIMUM_SYSTEMD=239
MINIMUM_MEMORY=131072
SERVICE_FILES="vedette.service vedette-udp.socket vedette-tcp.socket vedette-watch.service vedette-upgrade.service vedette-upgrade.path"
UNITS=/etc/systemd/system
KEY='ed25519:[A-Za-z0-9+/=]{44}'
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
    reported=yes
    exit "$code"
}

# matches VALUE PATTERN: VALUE is one line of this form, an extended regular expression.
matches() {
    case $1 in *"
"*) return 1 ;; esac
    printf '%s\n' "$1" | grep -Eqx -e "$2"
}

# expects OPTION VALUE PATTERN WHAT: VALUE matches.
expects() { matches "$2" "$3" || die 2 "$1: expects $4"; }

# path OPTION VALUE: $value is VALUE without a trailing slash; only plain absolute paths, at least two deep or new.
path() {
    value=${2%/}
    expects "$1" "$value" '(/([A-Za-z0-9_-]|\.[A-Za-z0-9_-]|\.\.[A-Za-z0-9._-])[A-Za-z0-9._-]*)+' "a plain absolute path, not '$2'"
    case $value in
        /bin | /boot | /dev | /etc | /home | /lib | /lib64 | /media | /mnt | /opt | /proc | /root | /run | /sbin | /srv | /sys | /tmp | \
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

# names OPTION VALUE: $value is the names in VALUE, which stand with commas between, as words.
names() {
    expects "$1" "$2" '[a-z][a-z0-9]*(,[a-z][a-z0-9]*)*' "names such as archive or archive,kafka, not '$2'"
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

# ours LINK: the command, of the installation in $prefix.
ours() { [ "$(readlink "$1" 2>/dev/null || :)" = "$prefix/current/bin/vedette" ]; }

# Sets home, the prefix of the installation that this script is part of, as PREFIX/releases/ID/install.sh. Empty where it
# came out of a zip.
place_of_script() {
    home=''
    [ -f "$here/FILES.sha256" ] || return 0
    case ${here%/*} in
        */releases) home=${here%/releases/*} ;;
        *) [ -n "$prefix" ] || die 2 "$here is a release outside of an installation: name the one that is meant with --prefix" ;;
    esac
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
    for name in releases current; do # .lock/vedette: of a run that was killed
        [ -n "$named" ] || [ -e "$prefix/.lock/vedette" ] || { [ ! -e "$prefix/$name" ] && [ ! -L "$prefix/$name" ]; } ||
            die 2 "$prefix holds releases of another program: give a folder of its own with --prefix"
    done
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
            --purge) purge=yes ;;
            --dry-run) dry_run=yes ;;
            --help | -h) usage && exit 0 ;;
            *) die 2 "unknown option '$1'; see --help" ;;
        esac
        shift
    done
    needs cat cp cut date dd df dirname find flock grep gzip head id ls mkdir mktemp mv printf readlink rm rmdir sed sha256sum sleep tail tar uname
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
        expects --log "$log_file" '/.+' "an absolute path, not '$log_file'"
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
    [ -z "$within" ] || expects --within "$within" '[0-9]{1,15}' "seconds, not '$within'"
    expects --grace "$grace" '[0-9]{1,15}' "seconds, not '$grace'"
    [ -z "$region" ] || expects --region "$region" 'mqtts?://[]A-Za-z0-9.:/[-]+' "mqtt://HOST[:PORT] or mqtts://HOST[:PORT], not '$region'"
    [ -z "$token" ] || expects --token "$token" 'v1:[A-Za-z0-9._-]+:[A-Za-z0-9._-]{16}:[A-Za-z0-9._-]{43}' \
        "v1:FLEET:ID:SECRET, as 'vedette region token create' prints it"
    [ -z "$token" ] || [ -n "$region" ] || die 2 "--token needs --region, the broker's address"
    expects --listen "$listen" '([A-Za-z0-9.-]+|\[[A-Za-z0-9.:]+\]):[1-9][0-9]{0,4}' \
        "HOST:PORT, the port a number from 1 to 65535 without leading zeros, not '$listen'"
    port=${listen##*:}
    [ "$port" -le 65535 ] || die 2 "--listen: the port is a number from 1 to 65535, not '$port'"
    [ -z "$release_key" ] || expects --release-key "$release_key" "$KEY" "ed25519:BASE64, not '$release_key'"
    [ -z "$site_key" ] || expects --site-key "$site_key" "$KEY" "ed25519:BASE64, not '$site_key'"
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
        needs systemctl stat chown getent
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

# Sets addons, the names of those that the release is to have, and file_NAME, the file of each; it may be missing where the
# release has the add-on. Whether it fits, and who signed it, is looked at with the release's program.
addons() {
    step="looking at the add-ons"
    addons=''
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
        wanted=vedette-$version-linux-$arch-$name.zip
        eval "file=\${file_$name:-}"
        for folder in "$(dirname "${VEDETTE_ARCHIVE:-$here/x}")" "$here/.." .; do
            if [ -z "$file" ] && [ -f "$folder/$wanted" ]; then file=$folder/$wanted; fi
        done
        if [ -z "$file" ] && [ ! -f "$release/addons/$name/ADDON" ] && [ ! -f "$release/addons/.gone.$name/ADDON" ]; then
            case " $with " in
                *" $name "*) die 18 "--with $name: $wanted is not beside ${VEDETTE_ARCHIVE:-$here}: put it there, or give its path: --with FOLDER/$wanted" ;;
                *) die 18 "the installed release has the add-on $name, and $wanted is not beside ${VEDETTE_ARCHIVE:-$here}: put it there, give its path (--with FOLDER/$wanted), or go on without it (--without $name)" ;;
            esac
        fi
        eval "file_$name=\$file"
    done
}

# named: an existing vedette.toml has the address, without which the agent does not find the sockets there.
named() { [ ! -r "$config" ] || grep -v '^ *#' "$config" | grep -qF -e "\"$listen\"" -e "'$listen'"; }

systemd_version() { systemd_is=$(systemctl --version | sed -n '1s/^systemd \([0-9]*\).*/\1/p'); }

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
    matches "$site_pin" "$KEY" || die 20 "the archive is damaged: site.pub is no public key; copy and unpack it again"
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
    unpacked=yes new=''
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

# foreign FOLDER: it holds what is not ours. A disk of its own with nothing on it does not.
foreign() {
    if [ ! -d "$1" ] || [ -e "$1/.vedette" ] || [ "$(stat -c %U "$1")" = vedette ]; then return 1; fi
    case $(ls -A "$1") in '' | lost+found) return 1 ;; esac
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
    lock
    [ "$(grounds)" = "$looked" ] || die 40 "another run of install.sh has just changed $prefix: run this again"
}

# inode PATH: the number of the file that it leads to; empty: to none.
inode() {
    # shellcheck disable=SC2012 # find does not follow a link to a file that is gone
    ls -diL "$1" 2>/dev/null | sed 's/^ *//; s/ .*//'
}

# lock: for this run alone. What is locked is no file, which somebody could delete as a leftover, and is opened by nobody
# else: whoever can open it could hold the lock.
lock() {
    writable "$prefix" || die 17 "$folder cannot be written to (a read-only file system, or no folder?)"
    mkdir -p "$prefix"
    [ -d "$prefix/.lock" ] || rm -f "$prefix/.lock"
    mkdir -m 700 "$prefix/.lock" 2>/dev/null || [ -d "$prefix/.lock" ] || die 17 "$prefix/.lock cannot be made"
    exec 9<"$prefix/.lock"
    flock -n 9 || die 40 "another run of install.sh is at work in $prefix"
    if [ -e /proc/self/fd/9 ] && [ "$(inode "$prefix/.lock")" != "$(inode /proc/self/fd/9)" ]; then
        die 40 "another run of install.sh has just ended in $prefix: run this again"
    fi
    [ -e "$prefix/.lock/vedette" ] || : >"$prefix/.lock/vedette"
}

# hand_over ACTION: what follows is done by the program of $release, which has just been tried, as this very process, which
# has the lock. A release of a former form brings no part for it.
hand_over() {
    installer=$release/installer site=''
    [ -d "$installer" ] || installer=$here/installer
    if [ -f "$here/site.tar" ]; then site=$here; fi
    set -- "$1" "prefix=$prefix" "config_dir=$config_dir" "data_dir=$data_dir" "listen=$listen" "systemd=$systemd" \
        "start=$start" "log=$log_file" "command=$command" "id=$id" "unpacked=$unpacked" "within=$within" "grace=$grace" \
        "force=$force" "region=$region" "site=$site" "release_key=$pin" "site_key=$site_pin" "wanted_listen=$wanted_listen" \
        "without=$without" "addons=$addons"
    for name in $addons; do eval "set -- \"\$@\" \"addon_$name=\${file_$name:-}\""; done
    VEDETTE_TOKEN=$token # which options show to other users
    export VEDETTE_TOKEN
    exec "$release/runtime/bin/vedetted" -X utf8 -I -S -B "$installer" "$@"
}

# At the end of what is done here, whatever it is: temporary files go, and a release that does not run. A program that
# failed without a message of ours gives exit code 1, since its own code means something else here.
clean() {
    result=$?
    trap '' HUP INT TERM
    set +e
    if [ $result != 0 ] && [ "$reported" = no ]; then
        printf '%s\n' "vedette: failed while $step${log:+; see $log}" >&2 || :
        note "failed while $step (exit code $result)"
        result=1
    fi
    if [ -n "$new" ]; then rm -rf "$new"; fi
    if [ -n "$scratch" ]; then rm -rf "$scratch"; fi
    if [ -d "$prefix/releases/.old.$$" ] && [ ! -e "$release" ]; then mv "$prefix/releases/.old.$$" "$release"; fi
    if [ "$complete" = no ] && [ -z "$before" ]; then
        rm -rf "$prefix/releases" "$prefix/installed" "$prefix/.lock"
        rmdir "$prefix" 2>/dev/null
        say "nothing was installed"
    fi
    exit $result
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
    hand_over install
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
    hand_over rollback
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
    rm -f "$UNITS"/vedette*.new "$UNITS"/vedette.service.d/50-*.new "$UNITS"/vedette.service.d/50-since-*.conf
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
    rm -rf "$config_dir"/.site.[0-9]* "$config_dir"/.token.[0-9]* "$config_dir"/.toml.[0-9]* \
        "$prefix"/.mark.[0-9]* "$command".tmp.[0-9]* "$command".was.[0-9]* "$prefix"/*.tmp.[0-9]*
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
    case ${1:-} in --watch | --staged) # what vedette-watch.service and vedette-upgrade.service run
        exec "$here/runtime/bin/vedetted" -X utf8 -I -S -B "$here/installer" "${1#--}" "prefix=${here%/releases/*}" ;;
    esac
    if [ "$*" = --supervise ] && [ -f "$here/current/supervise.sh" ]; then # a former release's supervisor put this there
        cp "$here/current/supervise.sh" "$here/supervise.sh.tmp.$$"
        mv "$here/supervise.sh.tmp.$$" "$here/supervise.sh"
        exec sh "$here/supervise.sh" --supervise
    fi
    log='' reported=no complete=yes unpacked=no new='' before='' release='' step=starting prefix='' config_dir='' scratch=''
    addons='' pin='' site_pin=''
    trap clean EXIT
    trap 'exit 1' HUP INT TERM
    trap : PIPE # `install.sh | head`: what is under way goes on
    arguments "$@"
    "$action"
}

main "$@"
