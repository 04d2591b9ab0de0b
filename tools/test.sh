#!/bin/sh
# All tests, by pytest in the folder $1: those of the Spark jobs beside the others, which wait more than they work.
# Ends with an error when either failed.
set -u
bin=$1
log=build/spark-tests.log
mkdir -p build
"$bin/pytest" -q --durations 10 tests/spark_jobs >"$log" 2>&1 &
spark=$!
trap 'kill "$spark" 2>/dev/null' EXIT
trap 'exit 1' HUP INT TERM
status=0
"$bin/pytest" -q --durations 10 --ignore tests/spark_jobs tests || status=$?
echo "==> tests/spark_jobs"
wait "$spark" || status=$?
cat "$log"
exit "$status"
