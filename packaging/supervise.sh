#!/bin/sh
# Runs the agent of the installation that this lies in, and upgrades by its fleet, where there is no systemd:
#
#   sh PREFIX/supervise.sh --supervise
#
# By the program of the release in force; of the one before, while a new one has not confirmed itself.
here=$(cd "$(dirname "$0")" && pwd -P) || exit 1
if [ "$*" != --supervise ]; then
    echo "usage: sh $here/supervise.sh --supervise; all else: sh $here/current/install.sh --help" >&2
    exit 2
fi
release=$here/current
if [ -e "$here/watch" ] && [ -d "$here/previous" ]; then release=$here/previous; fi
release=$(cd "$release" && pwd -P) || exit 1
exec "$release/runtime/bin/vedetted" -X utf8 -I -S -B "$release/installer" supervise "prefix=$here"
