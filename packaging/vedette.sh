#!/bin/sh
# The command `vedette` of an installed release; works from wherever it is linked.
here=$(readlink -f "$0") || exit 1
release=${here%/bin/vedette}
exec "$release/runtime/bin/vedetted" -X utf8 -I -S -B "$release/launch.py" "$@"
