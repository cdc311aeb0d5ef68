# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Third-party programs that are built once and kept outside the tree. To be sourced after common.sh.

# build_apart NAME TARGET COMMAND...: COMMAND, a function, makes `out`, a file or a directory, in a working directory of its own, and that becomes
# TARGET. A TARGET that is there is left alone. What COMMAND prints is shown when it fails.
build_apart() {
    local name=$1 target=$2 work status=0 started=$SECONDS
    shift 2
    if [ -e "$target" ]; then
        progress "$name: up to date"
        return
    fi
    progress "$name: building"
    mkdir -p "${target%/*}"
    work=$(mktemp -d "${target%/*}/.build.XXXXXX")
    # Not as a condition: there the first step that fails would not end it.
    (cd "$work" && "$@" >log 2>&1) &
    wait $! || status=$?
    if [ "$status" != 0 ]; then
        tail -n 30 "$work/log" >&2
        rm -rf "$work"
        die "$name: the build failed (see above)"
    fi
    # Whoever finishes first wins; the result is the same.
    mv -T "$work/out" "$target" 2>/dev/null || [ -e "$target" ]
    rm -rf "$work"
    progress "$name: built in $((SECONDS - started)) s"
}
