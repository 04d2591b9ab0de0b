#!/bin/sh
# Build the OpenTelemetry Collector of tools/otelcol/builder.yaml into build/otelcol, with Go: some minutes, 60 MB. The
# tests that want a real Collector find it there; without Go they are skipped. VEDETTE_OTELCOL=PROGRAM names another.
set -eu
cd "$(dirname "$0")/.."
wanted=$(sha256sum <tools/otelcol/builder.yaml)
if [ -x build/otelcol/otelcol ] && [ "$(cat build/otelcol/built 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi
if ! command -v go >/dev/null; then
    echo "no Go: the tests that want a real OpenTelemetry Collector will be skipped"
    exit 0
fi
mkdir -p build/otelcol
cp tools/otelcol/builder.yaml build/otelcol/
cd build/otelcol
GOBIN=$PWD go install go.opentelemetry.io/collector/cmd/builder@v0.149.0
CGO_ENABLED=0 ./builder --config builder.yaml
mv source/otelcol otelcol
rm -rf source builder
echo "$wanted" >built
