#!/usr/bin/env bash
# Records what a command prints, line by line, and plays it again. The format is asciicast 2, of asciinema.
#
#   tests/demo/cast.sh record FILE TITLE COMMAND...   runs a command; FILE exists afterwards only if it succeeds
#   tests/demo/cast.sh shorten SECONDS <FILE          prints the cast with pauses of at most so long
#   tests/demo/cast.sh play MARK <FILE                prints the lines in their time, each after a mark
set -uo pipefail
shopt -s extglob

# Microseconds since 1970. The separator of EPOCHREALTIME depends on the language.
now() {
    echo "${EPOCHREALTIME/[!0-9]/}"
}

# Copies standard input to a cast and to standard output: without colours if that is no terminal.
note() {
    local begun line at
    trap '' INT
    begun=$(now)
    printf '{"version": 2, "width": 120, "height": 32, "timestamp": %d, "title": "%s"}\n' "$EPOCHSECONDS" "$2" >"$1"
    while IFS= read -r line; do
        if [ -t 1 ]; then printf '%s\n' "$line"; else printf '%s\n' "${line//$'\e'[\[]*([0-9;])m/}"; fi
        at=$(($(now) - begun))
        line=${line//\\/\\\\}
        line=${line//\"/\\\"}
        line=${line//$'\e'/\\u001b}
        printf '[%d.%06d, "o", "%s\\r\\n"]\n' $((at / 1000000)) $((at % 1000000)) "${line//$'\t'/    }" >>"$1"
    done
}

record() {
    local file=$1 title=$2 code=0
    shift 2
    mkdir -p "$(dirname "$file")"
    exec 3> >(note "$file.new" "$title")
    local noting=$!
    "$@" >&3 3>&- || code=$?
    exec 3>&-
    wait "$noting"
    if [ "$code" = 0 ]; then mv "$file.new" "$file"; else rm -f "$file.new"; fi
    return "$code"
}

shorten() {
    awk -v most="$1" 'NR == 1 { print; next }
        { at = substr($1, 2) + 0; pause = at - last; last = at; now += pause < most ? pause : most
          sub(/^\[[0-9.]+/, sprintf("[%.3f", now)); print }'
}

play() {
    local line at last=0
    read -r line
    while IFS= read -r line; do
        at=${line#[}
        at=${at%%,*}
        line=${line#*\"o\", \"}
        line=${line%\\r\\n\"]}
        sleep "$(awk "BEGIN { print $at - $last }")"
        last=$at
        line=${line//\\\"/\"}
        printf '%s%b\n' "$1" "${line//\\u001b/\\e}"
    done
}

case ${1:-} in
record | shorten | play) "$@" ;;
*) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
