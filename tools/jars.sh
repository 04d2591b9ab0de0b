#!/bin/sh
# Fetch the jars that pip's pyspark lacks into build/jars/spark and build/jars/broker, by Maven (the package `maven`).
# Tests that need them skip when they are not there, so a failure is said and is none; a cluster names its jars by
# `spark-submit --packages` instead.
set -eu
cd "$(dirname "$0")/.."
if ! command -v mvn >/dev/null; then
    echo "no Maven: the tests with Kafka and with Delta by Spark will be skipped (sudo apt-get install maven)"
    exit 0
fi
for set in spark broker; do
    [ ! -d "build/jars/$set" ] || continue
    rm -rf "build/jars/.$set"
    if mvn -B -q -s tools/jars/settings.xml -f tools/jars/pom.xml -P "$set" \
        org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$PWD/build/jars/.$set" >build/jars.log 2>&1; then
        mv "build/jars/.$set" "build/jars/$set"
        echo "build/jars/$set: $(ls "build/jars/$set" | wc -l) jars"
    else
        echo "jars for $set not fetched, see build/jars.log: the tests that need them will be skipped"
    fi
done
