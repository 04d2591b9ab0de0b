#!/bin/sh
# Fetch the jars that pip's pyspark lacks (spark) and the tests' servers (broker: Kafka, s3: s3proxy) into build/jars/SET,
# by Maven (the package `maven`).
# The digest of the pom that they are of lies beside them (pom.sha256): those of another pom are fetched again, or, where
# that fails, removed. Without a digest they stay when all that the pom names are there. Tests that need them skip when
# they are not there, so a failure is said and is none; a cluster names its jars by `spark-submit --packages` instead.
set -eu
cd "$(dirname "$0")/.."
pom=tools/jars/pom.xml
digest=$(sha256sum <$pom)
mkdir -p build/jars

# The files that the pom names for the set $1.
named() {
    awk -v want="$1" '
        /<id>/ { gsub(/.*<id>|<\/id>.*/, ""); here = $0 == want }
        here && /<artifactId>/ && !/<exclusion>/ { gsub(/.*<artifactId>|<\/artifactId>.*/, ""); name = $0 }
        here && /<version>/ { gsub(/.*<version>|<\/version>.*/, ""); print name "-" $0 ".jar" }
    ' $pom
}

# Whether the jars of the set $1 are those of the pom.
have() {
    [ -d "build/jars/$1" ] || return 1
    if [ -e "build/jars/$1/pom.sha256" ]; then
        [ "$(cat "build/jars/$1/pom.sha256")" = "$digest" ] || return 1
    else
        for jar in $(named "$1"); do
            [ -e "build/jars/$1/$jar" ] || return 1
        done
        echo "$digest" >"build/jars/$1/pom.sha256"
    fi
}

for set in spark broker s3; do
    ! have $set || continue
    rm -rf "build/jars/$set" "build/jars/.$set"
    if ! command -v mvn >/dev/null; then
        echo "no Maven for the jars of $set: the tests that need them will be skipped (sudo apt-get install maven)"
    elif mvn -B -q -s tools/jars/settings.xml -f $pom -P $set \
        org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$PWD/build/jars/.$set" >build/jars.log 2>&1; then
        echo "$digest" >"build/jars/.$set/pom.sha256"
        mv "build/jars/.$set" "build/jars/$set"
        set -- "build/jars/$set"/*.jar
        echo "build/jars/$set: $# jars"
    else
        echo "jars for $set not fetched, see build/jars.log: the tests that need them will be skipped"
    fi
done
