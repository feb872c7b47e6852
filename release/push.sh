#!/bin/sh
# Copies the images of a release, with their SBOMs, and its charts into a registry, if the digests of all files are right.
#
#   release/push.sh FOLDER REPOSITORY
#
# The images get the name REPOSITORY:VERSION, and the charts go to REPOSITORY-charts. The environment has the programs REGCTL
# and HELM, and VERSION. HELM_FLAGS are flags for a registry without TLS.
set -eu
cd "$1"
sha256sum --check --quiet --strict SHA256SUMS >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar --extract --file "mczk-$VERSION-image.tar" --directory "$work"
"$REGCTL" image copy --referrers "ocidir://$work:$VERSION" "$2:$VERSION"
for chart in mczk mczk-agent; do
    # shellcheck disable=SC2086 # several flags
    "$HELM" push ${HELM_FLAGS:-} "$chart-$VERSION.tgz" "oci://$2-charts"
done
