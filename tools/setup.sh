#!/bin/sh
# A Python environment with everything for development: sh tools/setup.sh PYTHON VENV
set -eu
python="$1"
venv="$2"

supported() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

if ! supported "$python"; then
    python=""
    for candidate in python3.11 python3.12 python3.13; do
        if supported "$candidate"; then python="$candidate"; break; fi
    done
fi
if [ -z "$python" ]; then
    echo "Vedette needs Python 3.11, 3.12 or 3.13 and found none." >&2
    echo "Debian 12 or Ubuntu 24.04: sudo apt-get install python3 python3-venv; elsewhere: make PYTHON=/path/to/python3.11" >&2
    exit 1
fi
if [ ! -x "$venv/bin/python" ]; then
    if ! "$python" -m venv "$venv" 2>/dev/null; then
        rm -rf "$venv"
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null
            "$python" -m venv "$venv"
        else
            echo "Python's venv module is missing: sudo apt-get install python3-venv" >&2
            exit 1
        fi
    fi
fi
echo "installing Python packages into $venv"
"$venv/bin/python" -m pip install -q --disable-pip-version-check -e '.[rules,region,kafka,dev]'
