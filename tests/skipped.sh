#!/bin/sh
# Says which checks cannot run here, and why. Fails if REQUIRED is set: a release skips no check.
#
#   tests/skipped.sh WHY CHECK...
#
# The checks are noted in the file $MCZK_SKIPPED, a line for each. tests/parts.sh prints their number.
set -eu
why=$1
shift
case $# in 1) checks="1 check" ;; *) checks="$# checks" ;; esac
echo "$why: $checks skipped$(printf ', %s' "$@" | sed 's/^,/:/')" >&2
printf '%s\n' "$@" >>"${MCZK_SKIPPED:-/dev/null}"
[ -z "${REQUIRED:-}" ]
