# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What every script of hack/ shares: where things are kept, how progress and errors are told.
# To be sourced after `set -euo pipefail`.

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck disable=SC2034  # used by the scripts that source this file
REPO_DIR=$(dirname "$HACK_DIR")

# Everything that is built or kept lives here, outside the source tree.
SPLITFS_CACHE=${SPLITFS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/splitfs}
# shellcheck disable=SC2034
TOOLS_CACHE=$SPLITFS_CACHE/tools

START_SECONDS=$SECONDS

# Progress goes to standard error: standard output belongs to results (--print-dir, kubectl, ...).
progress() {
    local t=$((SECONDS - START_SECONDS))
    printf '[%3d:%02d] %s\n' $((t / 60)) $((t % 60)) "$*" >&2
}

warn() {
    printf '%s: warning: %s\n' "${0##*/}" "$*" >&2
}

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# Wrong usage is told apart from failure by exit status 2, as everywhere in this project.
usage_error() {
    printf '%s: %s (try %s --help)\n' "${0##*/}" "$*" "$0" >&2
    exit 2
}

need_root() {
    [ "$(id -u)" = 0 ] || die "$1 needs root: run it as root or with sudo"
}

# need_commands PACKAGE-HINT COMMAND...: all missing ones are named in one error.
need_commands() {
    local hint=$1 command missing=()
    shift
    for command in "$@"; do
        command -v "$command" >/dev/null || missing+=("$command")
    done
    [ ${#missing[@]} = 0 ] || die "missing: ${missing[*]}; $hint"
}

# The status by which a polled command says that waiting any longer is pointless.
GIVE_UP=99

# wait_until SECONDS DESCRIPTION COMMAND...: poll until COMMAND succeeds, PATIENCE [1] times as long. Its output is shown only on failure.
wait_until() {
    local limit=$(($1 * ${PATIENCE:-1})) what=$2 end output status
    shift 2
    end=$((SECONDS + limit))
    while true; do
        status=0
        output=$("$@" 2>&1) || status=$?
        [ "$status" != 0 ] || return 0
        if [ "$status" = "$GIVE_UP" ] || [ "$SECONDS" -ge "$end" ]; then
            [ -z "$output" ] || printf '%s\n' "$output" >&2
            [ "$status" = "$GIVE_UP" ] || printf '%s: %s: not within %s s\n' "${0##*/}" "$what" "$limit" >&2
            return 1
        fi
        sleep 0.1
    done
}
