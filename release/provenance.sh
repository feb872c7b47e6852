#!/bin/sh
# Prints the provenance of the files in a folder: a statement of in-toto with a predicate of SLSA v1.
#
#   release/provenance.sh FOLDER DIGEST-OF-THE-IMAGE
#
# The environment is that of release/build.sh.
set -eu
cd "$(dirname "$0")/.."

sha256() {
    sha256sum "$1" | cut -d ' ' -f 1
}

# The files and the index of the images, as subjects.
subjects() {
    for file in "$1"/*; do
        printf '    {"name": "%s", "digest": {"sha256": "%s"}},\n' "${file##*/}" "$(sha256 "$file")"
    done
    printf '    {"name": "mczk:%s", "digest": {"sha256": "%s"}}\n' "$VERSION" "${2#sha256:}"
}

# Locked inputs, as dependencies.
locks() {
    for file in Cargo.lock image/go.mod image/go.sum; do
        printf ',\n        {"uri": "file:///mczk/%s", "digest": {"sha256": "%s"}}' "$file" "$(sha256 "$file")"
    done
}

time=$(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
cat <<EOF
{
  "_type": "https://in-toto.io/Statement/v1",
  "subject": [
$(subjects "$1" "$2")
  ],
  "predicateType": "https://slsa.dev/provenance/v1",
  "predicate": {
    "buildDefinition": {
      "buildType": "$SOURCE/release/v1",
      "externalParameters": {"version": "$VERSION", "url": "$URL", "source": "$SOURCE"},
      "internalParameters": {"rustc": "$(rustc --version)", "sourceDateEpoch": $SOURCE_DATE_EPOCH},
      "resolvedDependencies": [
        {"uri": "git+$SOURCE", "digest": {"gitCommit": "$REVISION"}, "annotations": {"time": "$time"}}$(locks)
      ]
    },
    "runDetails": {"builder": {"id": "$BUILDER"}}
  }
}
EOF
