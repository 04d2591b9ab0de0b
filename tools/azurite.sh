#!/bin/sh
# Azurite, Azure's own emulator of its storage, into build/azurite, by npm: a minute, 100 MB. The tests of archives in Azure
# find it there; without node or npm they are skipped. VEDETTE_AZURITE=azurite-blob's main.js names another.
set -eu
cd "$(dirname "$0")/.."
version=3.35.0
if [ "$(cat build/azurite/built 2>/dev/null)" = "$version" ]; then
    exit 0
fi
if ! command -v npm >/dev/null; then
    echo "no npm: the tests of archives in Azure will be skipped"
    exit 0
fi
mkdir -p build/azurite
npm install --prefix build/azurite --no-save --no-audit --no-fund --ignore-scripts "azurite@$version"
echo "$version" >build/azurite/built
