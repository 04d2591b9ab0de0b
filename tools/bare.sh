#!/bin/sh
# Make a bare Debian 12 in a container (debootstrap, systemd-nspawn), with git, make, python3 and python3-venv and nothing
# else, clone HEAD in it and run make there: sh tools/bare.sh [TARGET ...], by default demo and test. As root. AGAIN=1 goes
# on in the container of the last run, where the clone becomes HEAD. The network is the host's; how apt, pip, Maven, npm
# and Cargo reach their registries, and the certificates they trust, are copied from the host.
set -eu
cd "$(dirname "$0")/.."
pristine=$PWD/build/bare/debian root=$PWD/build/bare/root clone=/root/vedette

[ "$(id -u)" = 0 ] || { echo "a container needs root: sudo sh tools/bare.sh" >&2; exit 1; }
for program in debootstrap systemd-nspawn; do
    command -v $program >/dev/null || { echo "$program is missing: sudo sh tools/packages.sh tests" >&2; exit 1; }
done

# The first address of the host's apt that ends in $1; none where it names none: debootstrap has a default.
mirror() {
    cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -v '^#' | grep -oE "https?://[^ ]*/$1/?( |\$)" |
        head -n 1
}

inside() {
    # Without systemd on the host there is nobody to register with.
    [ -d /run/systemd/system ] || set -- --register=no --keep-unit "$@"
    # shellcheck disable=SC2046 # one word each
    SYSTEMD_NSPAWN_TMPFS_TMP=0 systemd-nspawn --quiet -D "$root" --console=pipe --bind-ro=/etc/hosts \
        $(env | grep -E '^((https?|ftp|all|no)_proxy|(HTTPS?|FTP|ALL|NO)_PROXY|PIP_(INDEX_URL|EXTRA_INDEX_URL|CERT|DEFAULT_TIMEOUT)|CARGO_HTTP_CAINFO|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|GIT_SSL_CAINFO)=[^ ]*$' |
            sed 's/^/--setenv=/') "$@" </dev/null
}

if [ -z "${AGAIN:-}" ] || [ ! -d "$root$clone" ]; then
    if [ ! -d "$pristine" ]; then
        rm -rf "$pristine.new"
        mkdir -p "$pristine.new"
        # shellcheck disable=SC2046 # no word where the host names no mirror
        debootstrap --variant=minbase --include=ca-certificates,git,make,python3,python3-venv \
            bookworm "$pristine.new" $(mirror debian)
        security=$(mirror debian-security)
        [ -z "$security" ] || echo "deb $security bookworm-security main" >>"$pristine.new/etc/apt/sources.list"
        mv "$pristine.new" "$pristine"
    fi
    rm -rf "$root"
    cp -a "$pristine" "$root"
    for path in /etc/apt/auth.conf /etc/apt/auth.conf.d /etc/pip.conf /usr/local/share/ca-certificates; do
        [ ! -e $path ] || cp -aT $path "$root$path"
    done
    for path in .config/pip .pip .m2/settings.xml .npmrc .cargo/config.toml; do
        [ ! -e "$HOME/$path" ] || { mkdir -p "$(dirname "$root/root/$path")"; cp -aT "$HOME/$path" "$root/root/$path"; }
    done
    grep -lE '^ *Acquire::' /etc/apt/apt.conf.d/* 2>/dev/null | while read -r path; do cp -a "$path" "$root$path"; done
    git clone --quiet --no-hardlinks "file://$PWD" "$root$clone"
    inside sh -c "update-ca-certificates >/dev/null && apt-get update -qq && apt-get upgrade -qq -y >/dev/null"
fi
git -C "$root$clone" fetch --quiet origin HEAD
git -C "$root$clone" reset --quiet --hard FETCH_HEAD
[ $# -gt 0 ] || set -- demo test
inside sh -c "cd $clone && . /etc/os-release && echo \"==> \$PRETTY_NAME, \$(python3 -V), \$(git log -1 --oneline)\""
for target; do
    inside --chdir=$clone make "$target"
done
