# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Images come as archives (docker-archive or OCI) and are imported on every node: there is no registry.

# import_image NODE FILE: prints the names of the imported images. The archive is read from standard input, because the
# node may not see the directory it is in.
import_image() {
    in_node "$1" "$(tool containerd ctr)" -a "$CONTAINERD_SOCKET" -n k8s.io images import - <"$2"
}

# import_images NODE... -- FILE...: all nodes at once, one file after the other.
import_images() {
    local nodes=() node file pids pid failed
    while [ "$1" != -- ]; do
        nodes+=("$1")
        shift
    done
    shift
    for file in "$@"; do
        pids=()
        failed=0
        for node in "${nodes[@]}"; do
            import_image "$node" "$file" >"$(node_dir "$node")/log/import.log" 2>&1 &
            pids+=($!)
        done
        for pid in "${pids[@]}"; do
            wait "$pid" || failed=1
        done
        if [ "$failed" = 1 ]; then
            for node in "${nodes[@]}"; do
                sed "s/^/$node: /" "$(node_dir "$node")/log/import.log" >&2
            done
            die "$file cannot be imported: is it a docker-archive or oci-archive tar? (see above)"
        fi
        progress "imported on ${nodes[*]}: ${file##*/}"
    done
}

# check_archives FILE...: refuse before anything is imported.
check_archives() {
    local file names
    for file in "$@"; do
        [ -f "$file" ] || die "$file: no such image archive"
        names=$(tar -tf "$file") || die "$file: not a tar archive"
        grep -qxE '(\./)?(manifest|index)\.json' <<<"$names" ||
            die "$file: not an image archive (no manifest.json or index.json in it)"
    done
}

# pause_archive: the sandbox image as an archive, made when it is missing; prints its path.
pause_archive() {
    local dir archive work
    dir=$("$HACK_DIR/build-tools" --print-dir pause)
    archive=$SPLITFS_CACHE/images/$(basename "$dir").tar
    if [ ! -f "$archive" ]; then
        mkdir -p "$SPLITFS_CACHE/images"
        work=$(mktemp -d "$SPLITFS_CACHE/images/.pause.XXXXXX")
        cp "$dir/pause" "$work/"
        mkimage "$archive" "$PAUSE_IMAGE" "$work" '["/pause"]'
        rm -rf "$work"
    fi
    printf '%s\n' "$archive"
}
