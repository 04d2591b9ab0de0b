#!/bin/sh
# All tests, by pytest in the folder $1, in streams beside each other, since many wait more than they work. What failed
# beside the others runs once more, alone: a test that passes only then waits for too little, and is named to be mended;
# one that fails again fails the run. With "unit" only those that need no other program, no agent of their own and little
# time, in four streams. What is marked `release` runs by `make test-crash`, `make
# test-install`, `make evaluate` and `make pictures`.
set -u
bin=$1
unit=${2:-}
only="not release"
[ -z "$unit" ] || only="$only and not slow and not peer and not crash and not spark and not install and not boot"
AGAIN=12 # failed tests that may run again; with more of them something is wrong that time does not mend
CPU_BOUND=" rules spark_jobs jobs " # streams of lower priority than those that wait for agents and servers
HUNG=1500 # seconds after which a test ends its stream, and says where each thread stands
logs=build/streams
rm -rf $logs
mkdir -p $logs
# What is killed at random is killed at the same moments when it runs again.
VEDETTE_CRASH_SEED=${VEDETTE_CRASH_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
export VEDETTE_CRASH_SEED
echo "VEDETTE_CRASH_SEED=$VEDETTE_CRASH_SEED"

tests() { # NAME [ARGUMENT...]: those of a stream, as its arguments say, instead of this shell
    name=$1 nice=0
    shift
    case "$CPU_BOUND" in *" $name "*) nice=5 ;; esac
    exec nice -n $nice "$bin/pytest" -q --durations 10 -m "$only" -o cache_dir=$logs/"$name" -o faulthandler_timeout=$HUNG \
        -o faulthandler_exit_on_timeout=true "$@" >>$logs/"$name".log 2>&1
}
again() { # NAME: the tests of a stream that failed, by name; an error where none is known, as when pytest itself failed
    "$bin/python" -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\0", end="")' \
        $logs/"$1"/v/cache/lastfailed >$logs/"$1".failed && [ -s $logs/"$1".failed ] &&
        xargs -0 "$bin/pytest" -q -o cache_dir=$logs/"$1" <$logs/"$1".failed >$logs/"$1".log 2>&1
}
streams='' failed=''
stream() { # NAME ARGUMENT...
    : >$logs/"$1".log
    (tests "$@") &
    streams="$streams$!:$1 "
}
trap 'for one in $streams; do kill "${one%%:*}" 2>/dev/null; done' EXIT
trap 'exit 1' HUP INT TERM

RULES="tests/rules tests/plan tests/engine tests/decode tests/state"
[ -n "$unit" ] || RULES="$RULES tests/differential"
APART="$RULES tests/spark_jobs tests/e2e tests/install tests/bench tests/console"
[ -z "$unit" ] || APART="$APART tests/differential tests/fuzz"
rest() { # FOLDER...: those of them that have no stream of their own
    for folder in "$@"; do
        case " $APART tests/__pycache__ " in *" ${folder%/} "*) ;; *) echo "$folder" ;; esac
    done
}
# shellcheck disable=SC2046 # lists of folders
if [ -z "$unit" ]; then
    stream rest tests/test_*.py $(rest tests/*/)
else
    stream rest tests/test_*.py $(rest tests/[!j-z]*/)
    stream rest-j-z $(rest tests/[j-z]*/)
fi
# shellcheck disable=SC2086 # the same
stream rules $RULES
stream console tests/console
if [ -z "$unit" ]; then
    stream spark_jobs --ignore-glob 'tests/spark_jobs/jobs/test_[a-m]*.py' tests/spark_jobs
    stream jobs tests/spark_jobs/jobs/test_[a-m]*.py
    stream install tests/install
    stream agents-a-f tests/e2e/test_[a-f]*.py
    stream agents-g-r tests/e2e/test_[g-r]*.py tests/bench
    stream agents-s-z tests/e2e/test_[s-z]*.py
fi
tail -q -n +1 -f --pid="${streams%%:*}" $logs/rest.log
for one in $streams; do
    wait "${one%%:*}" || failed="$failed${one#*:} "
done
for one in $streams; do
    [ "${one#*:}" = rest ] || { echo "==> ${one#*:}" && cat $logs/"${one#*:}".log; }
done
streams=''

status=0
tests=$(cat $logs/*.log | grep -cE '^(FAILED|ERROR) ')
[ -z "$failed" ] || [ "$tests" -le $AGAIN ] || exit 1
for one in $failed; do
    echo "==> $one: what failed, again and alone"
    : >$logs/"$one".log
    again "$one" || status=1
    cat $logs/"$one".log
done
[ -z "$failed" ] || [ $status != 0 ] || echo "==> the tests above failed beside others and passed alone: they wait for too little"
exit $status
