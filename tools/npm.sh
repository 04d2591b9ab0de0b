#!/bin/sh
# Programs for the tests that npm has, into build/NAME: sh tools/npm.sh azurite|oidc. Without node or npm the tests that need
# them are skipped. azurite: Azure's own emulator of its storage, 100 MB (VEDETTE_AZURITE names another's main.js). oidc: an
# OpenID provider, 20 MB (VEDETTE_OIDC_PROVIDER names another node_modules).
set -eu
cd "$(dirname "$0")/.."
case "${1:-}" in
azurite) package=azurite@3.35.0 ;;
oidc) package=oidc-provider@9.13.3 ;;
*) echo "sh tools/npm.sh azurite|oidc" >&2; exit 2 ;;
esac
folder="build/$1"
if [ "$(cat "$folder/built" 2>/dev/null)" = "$package" ]; then
    exit 0
fi
if ! command -v npm >/dev/null; then
    echo "no npm: the tests that need $1 will be skipped"
    exit 0
fi
mkdir -p "$folder"
npm install --prefix "$folder" --no-save --no-audit --no-fund --ignore-scripts "$package"
echo "$package" >"$folder/built"
