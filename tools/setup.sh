#!/bin/sh
# A Python environment with everything for development, of the versions in requirements.lock:
# sh tools/setup.sh PYTHON VENV [packages]. Without a PYTHON ("") it is the system's, else the oldest supported one there
# is. An environment of another Python, or made from other versions, is rebuilt. "packages": what others wrote alone.
set -eu
asked="$1"
venv="$2"

supported() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

python=""
for candidate in ${asked:-/usr/bin/python3 python3.11 python3.12 python3.13 python3}; do
    if supported "$candidate"; then python="$candidate"; break; fi
done
if [ -z "$python" ]; then
    echo "Vedette needs Python 3.11, 3.12 or 3.13${asked:+, which $asked is not}." >&2
    echo "Debian 12 or Ubuntu 24.04: sudo apt-get install python3 python3-venv; elsewhere: make PYTHON=/path/to/python3.11" >&2
    exit 1
fi
# setuptools comes first: it builds pyspark, which has no wheel, and us; both with nothing that the lock does not name.
pip() {
    "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation --use-pep517 "$@"
}
# By paths and by no hook, which would find parts of ours for a copy of the package that lacks them.
editable="--config-settings=editable_mode=compat"
locked=$("$python" -c 'import sys; print(sys.version, sys.base_prefix)' | cat - requirements.lock tools/setup.sh | sha256sum)
ours=$(sha256sum <pyproject.toml)
have=$(cat "$venv/.installed" 2>/dev/null) || have=""

if [ "${have%:*}" != "$locked" ]; then
    if ! "$python" -m venv --clear "$venv" 2>/dev/null; then
        rm -rf "$venv"
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null
            "$python" -m venv "$venv"
        else
            echo "Python's venv module is missing: sudo apt-get install python3-venv" >&2
            exit 1
        fi
    fi
    echo "installing Python packages into $venv ($("$venv/bin/python" -V))"
    sed -n '/^setuptools==/,/[^\\]$/p' requirements.lock >"$venv/setuptools.lock"
    pip --require-hashes -r "$venv/setuptools.lock"
    pip --require-hashes -r requirements.lock
    echo "$locked:" >"$venv/.installed"
fi
[ "${3:-}" != packages ] || exit 0
if [ "$have" != "$locked:$ours" ]; then
    # The kernel comes next: its library lies in the source tree and serves every environment.
    CARGO=false pip $editable -e .
    for folder in "$venv"/lib/python3.*/site-packages; do [ ! -d "$folder" ] || echo "$PWD" >"$folder/spark_jobs.pth"; done
    echo "$locked:$ours" >"$venv/.installed"
fi
sh tools/kernel.sh build "$venv" "$venv/bin/python" -m pip install --disable-pip-version-check --no-deps --no-build-isolation \
    --use-pep517 $editable
