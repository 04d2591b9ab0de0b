#!/bin/sh
# Fetch the jars that pip's pyspark lacks into build/jars/spark and build/jars/broker, by Maven (the package `maven`).
# Tests that need them skip when they are not there; a cluster names them by `spark-submit --packages` instead.
set -eu
cd "$(dirname "$0")/.."
for set in spark broker; do
    mvn -B -q -s tools/jars/settings.xml -f tools/jars/pom.xml -P "$set" \
        org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$PWD/build/jars/$set"
    echo "build/jars/$set: $(ls "build/jars/$set" | wc -l) jars"
done
