#!/bin/sh
# Write requirements.lock and packaging/edge.lock anew: the newest versions that pyproject.toml allows, with the hashes of
# their files, for Python 3.11 to 3.13 on any machine. sh tools/lock.sh PYTHON, the one of the environment.
set -eu
cd "$(dirname "$0")/.."
python="$1"
folder=build/lock
rm -rf $folder
"$python" -m venv $folder
$folder/bin/python -m pip install -q --disable-pip-version-check uv
index=$("$python" -m pip config get global.index-url 2>/dev/null) || index=""
UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-${PIP_INDEX_URL:-$index}}"
export UV_DEFAULT_INDEX
[ -n "$UV_DEFAULT_INDEX" ] || unset UV_DEFAULT_INDEX
{
    echo "# Written by 'make lock': what tools/setup.sh installs. By hash, so from any registry."
    $folder/bin/uv pip compile -q pyproject.toml --extra rules --extra region --extra postgres --extra mysql --extra kafka --extra archive --extra dev \
        --universal --python-version 3.11 --upgrade --generate-hashes --no-annotate --no-header
} >$folder/requirements.lock
mv $folder/requirements.lock requirements.lock
"$python" packaging/dist.py --lock wheels
rm -rf $folder
