#!/bin/sh
# Build Promtail into build/promtail, with Go: it takes 10 to 20 minutes and 2 GB of Go's caches. The test of Loki's pushes
# finds it there, else is skipped. VEDETTE_PROMTAIL=PROGRAM names another.
set -eu
cd "$(dirname "$0")/.."
version=v3.4.2
if [ -x build/promtail/promtail ] && [ "$(cat build/promtail/built 2>/dev/null)" = $version ]; then
    exit 0
fi
if ! command -v go >/dev/null; then
    echo "no Go: the test that wants a real Promtail will be skipped"
    exit 0
fi
folder=$(cd / && go mod download -json github.com/grafana/loki/v3@$version | sed -n 's/^.*"Dir": "\(.*\)".*$/\1/p')
mkdir -p build/promtail
rm -rf build/promtail/source
cp -r "$folder" build/promtail/source
chmod -R u+w build/promtail/source
cd build/promtail/source
rm -rf vendor # of which the module holds only a part, as it holds nothing of pkg/push
go mod edit -dropreplace=github.com/grafana/loki/pkg/push
CGO_ENABLED=0 go build -mod=mod -o ../promtail ./clients/cmd/promtail
cd ..
rm -rf source
echo $version >built
