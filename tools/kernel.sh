#!/bin/sh
# The native kernel, agent/kernel: sh tools/kernel.sh build VENV PIP... builds it into the source tree, by PIP, when it has
# changed; with root rights Rust is installed first. `lint PYTHON` and `test PYTHON` check the crate; where there is Rust,
# a kernel that is not built fails the test. `cross` installs what the zips need for theirs. Without Rust each says so and
# succeeds: the agent evaluates in Python then. `current` succeeds where the library is of these sources;
# `fuzz SECONDS` runs the targets of agent/kernel/fuzz.
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

# Succeeds where there is a new enough Rust; else `why` says what is missing.
rust() {
    why="" found=$(cargo --version 2>/dev/null | cut -d ' ' -f 2) || found=""
    if [ -z "$found" ]; then
        why="Rust $needed is missing: https://rustup.rs"
    elif ! enough "$found"; then
        why="Rust $found is older than $needed"
    elif ! command -v cc >/dev/null; then
        why="cc is missing: sudo apt-get install -y gcc libc6-dev"
    fi
    [ -z "$why" ]
}

# The same, where there is none at all after installing it, if that may be.
install_rust() {
    if rust; then return; fi
    if [ -n "$found" ] || ! command -v apt-get >/dev/null; then return 1; fi
    install=$(packages)
    if [ -z "$install" ] && [ "$(id -u)" = 0 ]; then
        apt-get update -qq || true
        install=$(packages)
    fi
    if [ -z "$install" ]; then
        why="Rust $needed is missing, and apt has no such version: https://rustup.rs"
    elif [ "$(id -u)" != 0 ]; then
        why="Rust is missing: sudo apt-get install -y $install"
    else
        echo "installing $install"
        # shellcheck disable=SC2086 # a list
        if DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $install >/dev/null; then
            return
        fi
        why="apt-get could not install $install"
    fi
    return 1
}

# Whether the library is that of these sources.
current() {
    sources=$(find $crate/src $crate/Cargo.* -type f | LC_ALL=C sort | xargs sha256sum | cat - pyproject.toml | sha256sum)
    [ -f $library ] && [ "$(cat build/kernel 2>/dev/null)" = "$sources" ]
}

build() {
    venv="$1"
    shift
    if current; then return; fi
    # A running agent keeps the old one: it is another file.
    rm -f $library build/kernel
    mkdir -p build
    if install_rust; then
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

# What builds the kernel for aarch64 beside this machine's, for the zips.
cross() {
    install_rust || { echo "native kernel: the zips go without it ($why)"; return; }
    missing="" target=aarch64-unknown-linux-gnu
    command -v aarch64-linux-gnu-gcc >/dev/null || missing="gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
    if [ ! -d "$(rustc --print target-libdir --target $target)" ]; then
        if command -v rustup >/dev/null; then
            rustup target add $target || true
        else
            missing="libstd-rust$(dpkg -s rustc-web >/dev/null 2>&1 && echo -web)-dev:arm64 $missing"
        fi
    fi
    if [ -z "$missing" ]; then return; fi
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing $missing"
        dpkg --add-architecture arm64 && apt-get update -qq
        # shellcheck disable=SC2086 # a list
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null || true
    else
        echo "The zip for aarch64 goes without a native kernel; for one run this once:"
        echo "  sudo dpkg --add-architecture arm64 && sudo apt-get update && sudo apt-get install -y $missing"
    fi
}

# A part of Rust's tool chain that Debian has in a package of its own.
has() {
    if cargo "$1" --version >/dev/null 2>&1; then return; fi
    echo "native kernel: cargo $1 is missing, passed over: sudo apt-get install -y $2, or rustup component add $3"
    return 1
}

lint() {
    if ! rust; then echo "native kernel: not checked ($why)"; return; fi
    if has fmt rustfmt-web rustfmt; then
        (set -x; cargo fmt --check --manifest-path $crate/Cargo.toml)
        (set -x; cargo fmt --check --manifest-path $crate/fuzz/Cargo.toml)
    fi
    if has clippy rust-web-clippy clippy; then
        (set -x; cargo clippy -q --locked --all-targets --manifest-path $crate/Cargo.toml -- -D warnings)
    fi
}

# The tests of the crate are programs that have Python in them, so they need its library.
tests() {
    if ! rust; then echo "native kernel: not tested ($why)"; return; fi
    if ! "$1" -c "import vedette._kernel"; then
        echo "native kernel: there is a Rust, but no kernel; see build/kernel.log" >&2
        exit 1
    fi
    library=$("$1" -c "import sysconfig as s; print(s.get_config_var('LIBDIR') + '/' + s.get_config_var('LDLIBRARY'))")
    if [ ! -e "$library" ]; then
        echo "native kernel: cargo test is passed over, $library is missing: sudo apt-get install -y libpython3-dev"
        return
    fi
    (set -x; cargo test -q --locked --manifest-path $crate/Cargo.toml)
}

# libFuzzer on what reads foreign bytes, for $1 seconds: by the stable compiler, so without the address sanitizer.
fuzz() {
    if ! rust; then echo "native kernel: not fuzzed ($why)"; return; fi
    if ! command -v c++ >/dev/null; then
        echo "native kernel: not fuzzed (c++ is missing: sudo apt-get install -y g++)"
        return
    fi
    target=$(rustc -vV | sed -n 's/^host: //p') folder=$PWD/build/fuzz
    coverage="-Ccodegen-units=1 -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
    for counts in inline-8bit-counters pc-table trace-compares; do
        coverage="$coverage -Cllvm-args=-sanitizer-coverage-$counts"
    done
    # With a --target what cargo runs while it builds is not counted.
    RUSTFLAGS="--cfg fuzzing $coverage" cargo build -q --release --locked --manifest-path $crate/fuzz/Cargo.toml \
        --target "$target" --target-dir "$folder/target"
    for source in "$crate"/fuzz/src/*.rs; do
        name=$(basename "$source" .rs) && corpus=$folder/kernel-$name-corpus
        mkdir -p "$corpus"
        if ! "$folder/target/$target/release/$name" -max_total_time="$1" -max_len=16384 -rss_limit_mb=1024 -timeout=10 \
            -artifact_prefix="$folder/kernel-$name-" "$corpus" "$crate/fuzz/seeds/$name" >"$folder/kernel-$name.log" 2>&1; then
            tail -n 40 "$folder/kernel-$name.log" >&2
            return 1
        fi
        echo "kernel-$name ok  $(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "$folder/kernel-$name.log") inputs in $1 s"
    done
}

command="$1"
shift
if [ "$command" = lint ] || [ "$command" = test ]; then
    PYO3_PYTHON=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
    export PYO3_PYTHON
fi
case "$command" in
build) build "$@" ;;
cross) cross ;;
current) current ;;
fuzz) fuzz "$1" ;;
lint) lint ;;
test) tests "$PYO3_PYTHON" ;;
esac
