#!/bin/sh
# The native kernel, agent/kernel: sh tools/kernel.sh build VENV PIP... builds it into the source tree, by PIP, when it has
# changed; `lint` and `test` check the crate. Where there is no Rust, each says so and succeeds: the agent evaluates in
# Python then. With root rights Rust is installed first.
set -eu
PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
crate=agent/kernel library=agent/vedette/_kernel.abi3.so
needed=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' $crate/Cargo.toml)

# Whether version $1 is $needed or later.
enough() {
    [ "$(printf '%s\n' "$needed" "$1" | sort -V | head -n 1)" = "$needed" ]
}

# The Debian packages of a new enough Rust; nothing where apt has none.
packages() {
    for suffix in "" -web; do
        candidate=$(apt-cache policy "cargo$suffix" 2>/dev/null | sed -n 's/^ *Candidate: *//p')
        if [ -n "$candidate" ] && [ "$candidate" != "(none)" ] && enough "${candidate#*:}"; then
            echo "cargo$suffix rustc$suffix gcc libc6-dev"
            return
        fi
    done
}

# Succeeds where there is a new enough Rust, after installing it if that may be; else `why` says what is missing.
rust() {
    why="" found=$(cargo --version 2>/dev/null | cut -d ' ' -f 2) || found=""
    if [ -n "$found" ]; then
        if ! enough "$found"; then why="Rust $found is older than $needed"; fi
        if ! command -v cc >/dev/null; then why="cc is missing: sudo apt-get install -y gcc libc6-dev"; fi
    elif ! command -v apt-get >/dev/null; then
        why="Rust $needed is missing: https://rustup.rs"
    else
        install=$(packages)
        if [ -z "$install" ] && [ "$(id -u)" = 0 ]; then
            apt-get update -qq || true
            install=$(packages)
        fi
        if [ -z "$install" ]; then
            why="Rust $needed is missing, and apt has no such version: https://rustup.rs"
        elif [ "$(id -u)" = 0 ]; then
            echo "installing $install"
            # shellcheck disable=SC2086 # a list
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $install >/dev/null ||
                why="apt-get could not install $install"
        else
            why="Rust is missing: sudo apt-get install -y $install"
        fi
    fi
    [ -z "$why" ]
}

build() {
    venv="$1"
    shift
    sources=$(find $crate/src $crate/Cargo.* -type f | LC_ALL=C sort | xargs sha256sum | cat - pyproject.toml | sha256sum)
    if [ -f $library ] && [ "$(cat build/kernel 2>/dev/null)" = "$sources" ]; then return; fi
    # A running agent keeps the old one: it is another file.
    rm -f $library build/kernel
    mkdir -p build
    if rust; then
        "$@" -v -e . >build/kernel.log 2>&1 || true
        if why=$("$venv/bin/python" -c "import vedette._kernel" 2>&1); then
            echo "$sources" >build/kernel
            echo "native kernel: built"
            return
        fi
        why="$(printf '%s\n' "$why" | tail -n 1)$(sed -n 's/^ *\(error[:[].*\)/: \1/p' build/kernel.log | head -n 1)"
        why="$why; more in build/kernel.log"
    fi
    echo "native kernel: not built ($why); the agent evaluates in Python"
}

case "$1" in
build)
    shift
    build "$@"
    ;;
esac
