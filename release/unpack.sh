#!/bin/sh
# Unpacks the program for this machine from a release whose digests are right, and prints its path.
#
#   release/unpack.sh FOLDER TARGET
set -eu
(cd "$1" && sha256sum --check --quiet --strict SHA256SUMS) >&2
case $(uname -m) in aarch64) arch=arm64 ;; *) arch=amd64 ;; esac
mkdir -p "$2"
tar --extract --gzip --file "$1"/mczk-*-linux-$arch.tar.gz --directory "$2" --strip-components 1
echo "$2/bin/mczk"
