#!/bin/sh
# Build the S3 server that the tests of the archive use, MinIO, from its Go module into build/minio: some minutes, once.
# Without it these tests are skipped.
set -eu
cd "$(dirname "$0")/.."
[ ! -x build/minio ] || exit 0
mkdir -p build
GOBIN="$PWD/build" nice go install github.com/minio/minio@latest
