#!/bin/sh
# Prints the version of this tree, which Cargo.toml alone declares, and fails if another file disagrees.
#
#   release/version.sh [TAG]
#
# With the tag of a release, it also checks that the tag is the version, and that the changelog has its date.
set -eu
cd "$(dirname "$0")/.."
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
wrong=

# Reports unless $3, which the file $1 has for $2, is the version.
equal() {
    [ "$3" = "$version" ] || { echo "$1: $2 is \"$3\", and Cargo.toml has version \"$version\"" >&2 && wrong=1; }
}

[ -n "$version" ] || { echo "Cargo.toml: [workspace.package] has no version" >&2 && exit 1; }
for chart in charts/*/Chart.yaml; do
    for field in version appVersion; do
        equal "$chart" $field "$(sed -n "s/^$field: \"*\([^\"]*\)\"*$/\1/p" "$chart")"
    done
    equal "$chart" "the tag in artifacthub.io/images" "$(sed -n 's/^ *image: .*:\([^:]*\)$/\1/p' "$chart")"
done
for manifest in manifests/agent.yaml manifests/operator.yaml; do
    equal $manifest "the tag of the image" "$(sed -n 's/^ *image: .*:\([^:]*\)$/\1/p' $manifest)"
done
equal CHANGELOG.md "the newest heading" "$(sed -n 's/^## \[\([0-9][^]]*\)\].*/\1/p' CHANGELOG.md | head -n 1)"
equal Cargo.lock "the version of mczk" "$(sed -n '/^name = "mczk"$/{n;s/version = "\(.*\)"/\1/p}' Cargo.lock)"
if [ -n "${1:-}" ]; then
    equal "the tag $1" "its version" "${1#v}"
    grep -q "^## \[$version\] - [0-9-]*$" CHANGELOG.md ||
        { echo "CHANGELOG.md: the heading of $version has no date, such as \"## [$version] - 2026-01-31\"" >&2 && wrong=1; }
fi
[ -z "$wrong" ] || exit 1
echo "$version"
