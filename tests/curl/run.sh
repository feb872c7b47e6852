#!/bin/sh
# Sends every case of this folder to a running operator with curl, over TLS, and compares what comes back.
#
#   tests/curl/run.sh URL CACERT [NAME]     for example: tests/curl/run.sh https://localhost:8443/interpreter ca.crt
#
# A case NAME has NAME.json, the body that is sent (or NAME.bytes: so many spaces), perhaps NAME.args with further arguments
# of curl, one a line, and NAME.expected: the status, the body with its patch cut out, and the patch in plain text. In a
# body, the line @PART@ stands for the file parts/PART. Limits in the expected answers are those of an operator with default
# flags. UPDATE=1 writes NAME.expected instead.
#
# It needs sh, curl, sed, tr, diff and base64. It ends with 1 if an answer differs, and with 2 if it cannot ask.
set -eu

if [ $# -lt 2 ] || [ $# -gt 3 ]; then
    echo "usage: $0 URL CACERT [NAME]" >&2
    exit 2
fi
url=$1
cacert=$2
only=${3-*}
cases=$(dirname "$0")/cases
parts=$(dirname "$0")/parts
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The body of one case, with its parts. The part `zookeeper` has parts of its own.
body() {
    set -- "$cases/$1.json"
    for part in zookeeper context request object spec; do
        sed -e "/@$part@/{r $parts/$part" -e 'd;}' "$1" >"$work/$part.json"
        set -- "$work/$part.json"
    done
    cat "$1"
}

# Status, body and patch of one case, as NAME.expected has them.
ask() {
    name=$1
    set -- --silent --show-error --max-time 30 --tlsv1.3 --http1.1 --cacert "$cacert" \
        --output "$work/body" --write-out '%{http_code}'
    target=$url
    typed=
    if [ -f "$cases/$name.args" ]; then
        while IFS= read -r argument; do
            case $argument in
                path=*) target=$url${argument#path=} ;;
                Content-Type:*) typed=1; set -- "$@" --header "$argument" ;;
                *) set -- "$@" "$argument" ;;
            esac
        done <"$cases/$name.args"
    fi
    [ -n "$typed" ] || set -- "$@" --header 'Content-Type: application/json'
    # An error's message ends with the id.
    set -- "$@" --header "X-Request-Id: $name"
    if [ -f "$cases/$name.bytes" ]; then
        head -c "$(cat "$cases/$name.bytes")" /dev/zero | tr '\0' ' ' >"$work/payload"
    else
        body "$name" >"$work/payload"
    fi
    : >"$work/body"
    curl "$@" --data-binary "@$work/payload" "$target" >"$work/status" || return 2
    {
        cat "$work/status"
        echo
        sed 's/"patch":"[^"]*"/"patch":"(below)"/' "$work/body"
        echo
        patch=$(sed -n 's/.*"patch":"\([^"]*\)".*/\1/p' "$work/body")
        if [ -n "$patch" ]; then
            printf %s "$patch" | base64 -d
            echo
        fi
    } >"$work/answer"
}

differences=0
asked=0
: >"$work/details"
printf '%-34s %-7s %s\n' CASE STATUS RESULT
for path in "$cases"/$only.json "$cases"/$only.bytes; do
    [ -f "$path" ] || continue
    name=$(basename "$path")
    name=${name%.*}
    asked=$((asked + 1))
    ask "$name" || {
        echo "cannot ask $url" >&2
        exit 2
    }
    if [ -n "${UPDATE:-}" ]; then
        cp "$work/answer" "$cases/$name.expected"
        result=written
    elif diff -u "$cases/$name.expected" "$work/answer" >"$work/difference" 2>&1; then
        result=ok
    else
        result=DIFFERS
        differences=$((differences + 1))
        { echo; cat "$work/difference"; } >>"$work/details"
    fi
    printf '%-34s %-7s %s\n' "$name" "$(cat "$work/status")" "$result"
done

if [ "$asked" -eq 0 ]; then
    echo "there is no case $only in $cases" >&2
    exit 2
fi
if [ "$differences" -gt 0 ]; then
    cat "$work/details"
    echo
    echo "$differences answers differ"
    exit 1
fi
echo "all answers are as expected"
