#!/bin/sh
# All tests, by pytest in the folder $1: those of the Spark jobs, of the installer and, in three parts by name, of whole
# agents beside the others, since they wait more than they work. With "unit" only those that need no other program, no
# agent of their own and little time, in two halves of about the same work. Ends with an error when any failed.
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

others=
beside() { # NAME PATH...
    name=$1
    shift
    tests "$@" >"build/tests-$name.log" 2>&1 &
    others="$others$! "
}
beside spark_jobs tests/spark_jobs
beside install tests/install tests/bench
beside agents-a-f tests/e2e/test_[a-f]*.py
beside agents-g-r tests/e2e/test_[g-r]*.py
beside agents-s-z tests/e2e/test_[s-z]*.py
trap 'kill $others 2>/dev/null' EXIT
trap 'exit 1' HUP INT TERM

status=0
tests --ignore tests/spark_jobs --ignore tests/install --ignore tests/bench --ignore tests/e2e tests || status=$?
for one in $others; do
    wait "$one" || status=$?
done
for part in agents-a-f agents-g-r agents-s-z install spark_jobs; do
    echo "==> $part"
    cat build/tests-$part.log
done
exit $status
