#!/bin/sh
# All tests, by pytest in the folder $1: those of the Spark jobs and, in three parts by name, those of whole agents beside
# the others, since they wait more than they work. With "unit" only those that need no other program, no agent of their
# own and little time, in two halves of about the same work. Ends with an error when any failed.
set -u
bin=$1
mkdir -p build

tests() {
    "$bin/pytest" -q --durations 10 "$@"
}
unit() {
    tests -m "not slow and not peer and not crash and not spark and not install and not boot and not release" "$@"
}
RULES="tests/rules tests/plan tests/engine tests/decode"
if [ "${2:-}" = unit ]; then
    # shellcheck disable=SC2086 # a list of folders
    unit $RULES >build/tests-rules.log 2>&1 &
    rules=$!
    trap 'kill $rules 2>/dev/null' EXIT
    trap 'exit 1' HUP INT TERM
    status=0
    # shellcheck disable=SC2046,SC2086 # the same
    unit $(printf -- '--ignore %s ' $RULES tests/spark_jobs tests/e2e tests/install tests/bench tests/differential \
        tests/fuzz) tests || status=$?
    wait $rules || status=$?
    echo "==> $RULES"
    cat build/tests-rules.log
    exit $status
fi

tests tests/spark_jobs >build/tests-spark_jobs.log 2>&1 &
others="$! "
for part in a-f g-r s-z; do
    # shellcheck disable=SC2086 # a pattern
    tests tests/e2e/test_[$part]*.py >build/tests-e2e-$part.log 2>&1 &
    others="$others$! "
done
trap 'kill $others 2>/dev/null' EXIT
trap 'exit 1' HUP INT TERM

status=0
tests --ignore tests/spark_jobs --ignore tests/e2e tests || status=$?
for one in $others; do
    wait "$one" || status=$?
done
for part in e2e-a-f e2e-g-r e2e-s-z spark_jobs; do
    echo "==> $part"
    cat build/tests-$part.log
done
exit $status
