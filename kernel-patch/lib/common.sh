# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # lines' settings come from line.conf, and others use what is set here
# What kernel-patch/build and kernel-patch/fetch share. To be sourced after `set -euo pipefail`.

# Raised with every change of the patches that shows from outside.
PATCH_VERSION=1.3
PATCH_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
KERNEL_CACHE=${SPLITFS_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/splitfs}/kernel

progress() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
}

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

usage_error() {
    printf '%s: %s (try --help)\n' "${0##*/}" "$*" >&2
    exit 2
}

# need_commands HINT COMMAND...
need_commands() {
    local hint=$1 command
    shift
    for command in "$@"; do
        command -v "$command" >/dev/null || die "missing command $command: $hint"
    done
}

TEMPORARY=()
# shellcheck disable=SC2317  # runs as a trap
remove_temporary() {
    [ ${#TEMPORARY[@]} = 0 ] || rm -rf -- "${TEMPORARY[@]}"
}
trap remove_temporary EXIT

# new_directory PARENT: sets $made to a new directory in PARENT that goes away with this process.
new_directory() {
    mkdir -p "$1"
    made=$(mktemp -d "$1/.new.XXXXXX")
    TEMPORARY+=("$made")
}

# lock NAME: held until this process ends. Whoever waits finds the work of the other in the cache.
lock() {
    mkdir -p "$KERNEL_CACHE"
    exec {lock_fd}>"$KERNEL_CACHE/.$1.lock"
    flock "$lock_fd"
}

# known_lines: the kernel lines there are patches for.
known_lines() {
    local conf
    for conf in "$PATCH_DIR"/*/line.conf; do basename "$(dirname "$conf")"; done | sort -V
}

# read_line LINE: sets line and the line_* settings of its line.conf.
read_line() {
    [ -f "$PATCH_DIR/$1/line.conf" ] || die "no patches for kernel line '$1'; there are: $(known_lines | xargs)"
    line=$1
    # shellcheck source=/dev/null
    . "$PATCH_DIR/$1/line.conf"
}

# line_of RELEASE: the line a kernel release belongs to.
line_of() {
    local candidate
    for candidate in $(known_lines); do
        (
            read_line "$candidate"
            # shellcheck disable=SC2053  # a pattern
            [[ $1 == $line_releases ]]
        ) && {
            echo "$candidate"
            return
        }
    done
    die "no patches for kernel $1 of Debian; there are some for the lines: $(known_lines | xargs). For another kernel give its tree: --source, --headers"
}

# other_versions: the versions besides their own that lines have patches for, as text.
other_versions() {
    local candidate
    for candidate in $(known_lines); do
        (
            read_line "$candidate"
            [ -z "${line_other_versions:-}" ] || echo "$line_other_versions: $candidate"
        )
    done | paste -sd, | sed 's/,/, /g'
}

# line_of_version VERSION: the line whose patches a source of that version takes (6.1.192, 5.15.0): its own, or one beside it.
line_of_version() {
    local candidate
    for candidate in $(known_lines); do
        (
            read_line "$candidate"
            case " $candidate ${line_other_versions:-} " in *" ${1%.*} "*) ;; *) exit 1 ;; esac
        ) && {
            echo "$candidate"
            return
        }
    done
    die "no patches for a source of version $1; there are some for $(known_lines | xargs), and $(other_versions)"
}

# unpack_source TARBALL DIR: the parts of a kernel source that are needed here, without its top directory.
unpack_source() {
    mkdir -p "$2"
    tar -xf "$1" -C "$2" --strip-components=1 --wildcards --no-wildcards-match-slash '*/Makefile' '*/fs/ext4' \
        '*/include/trace/events/ext4.h' \
        '*/scripts/checkpatch.pl' '*/scripts/spelling.txt' '*/scripts/const_structs.checkpatch' ||
        die "$1 holds no kernel source (a linux-source package's tar archive is expected)"
    [ -f "$2/fs/ext4/ext4.h" ] || die "$1 holds no fs/ext4"
}

# source_version DIR: the version that a kernel source has, as in its makefile: 6.12.117.
source_version() {
    awk -F' *= *' '$1 == "VERSION" || $1 == "PATCHLEVEL" || $1 == "SUBLEVEL" {v = v "." $2} /^NAME/ {exit} END {print substr(v, 2)}' \
        "$1/Makefile"
}
