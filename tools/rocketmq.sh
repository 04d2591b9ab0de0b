#!/bin/sh
# Apache RocketMQ for the test of examples/rocketmq, into build/rocketmq: its jars by Maven, its client by pip, 150 MB, some
# minutes, once. Without it that test is skipped.
set -eu
cd "$(dirname "$0")/.."
folder=build/rocketmq
[ ! -d $folder/site ] || exit 0
mvn -B -q -s tools/jars/settings.xml -f tools/jars/rocketmq.xml \
    org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$PWD/$folder/jars"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --target $folder/.site rocketmq-python-client==5.1.2
mv $folder/.site $folder/site
