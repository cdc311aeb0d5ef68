# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What is left of volumes whose claims are gone. Used by the end-to-end tests and by hack/chaos. To be sourced after lib.sh.

# our_volumes FILTER FIELD: of our PersistentVolumes whose claim's namespace passes the jq FILTER.
our_volumes() {
    kube get pv -o json | jq --raw-output ".items[] | select(.spec.csi.driver == \"csi.splitfs.io\" and (.spec.claimRef.namespace | $1)) | $2"
}

# no_volumes_of FILTER: no PersistentVolume of a claim in such a namespace is left.
no_volumes_of() {
    local names
    names=$(our_volumes "$1" .metadata.name)
    printf 'left: %s\n' "$names"
    [ -z "$names" ]
}

# nothing_left_of PREFIX [SECONDS]: neither objects nor, on any node, files, mounts, loop devices or agents of volumes of namespaces that
# begin so.
nothing_left_of() {
    nothing_left_where "startswith(\"$1\")" "${2:-90}"
}

# nothing_left_where FILTER SECONDS: the same for namespaces that pass the jq FILTER.
nothing_left_where() {
    local known node
    wait_until "$2" "deletion of the volumes" no_volumes_of "$1" || fail "volumes are left: $(our_volumes "$1" .metadata.name)"
    known=$(our_volumes "$1 | not" .spec.csi.volumeHandle)
    wait_until 60 "end of the status of volumes that are gone" no_status_besides "$known" || fail "SplitFSVolumes of volumes that are gone: $(kube get splitfsvolumes -o name | tr '\n' ' ')"
    for node in $(kube get nodes -o jsonpath='{.items[*].metadata.name}'); do
        # What a volume had is put away after it is gone, and an agent that is replaced is there twice for a moment.
        wait_until 60 "a clean node $node" node_is_clean "$node" "$known" || fail "$node: something is left (above)"
        say "$node: clean; $(staged_on "$node") volumes of others mounted, with as many agents"
    done
}

# no_status_besides IDS: no SplitFSVolume but those of these volumes.
no_status_besides() {
    local id names
    names=$(kube get splitfsvolumes -o jsonpath='{range .items[*]}{.metadata.name}{"\n"}{end}')
    for id in $names; do
        grep -qxF "$id" <<<"$1" || {
            printf 'left: %s\n' "$id"
            return 1
        }
    done
}

# node_is_clean NODE IDS
node_is_clean() {
    local node=$1 known=$2 directory file device mounted agents
    # Copies are settled in a directory that is there after the first of them.
    for directory in volumes volumes/snapshots volumes/settle emulated; do
        while read -r file; do
            case $directory/$file in
            */ | volumes/snapshots | volumes/settle | */.reserve) continue ;;
            esac
            grep -qxF "${file%.*}" <<<"$known" || fail "$node: /var/lib/splitfs/$directory/$file belongs to no volume"
        done < <(on_node "$node" sh -c "[ ! -d /var/lib/splitfs/$directory ] || ls -A /var/lib/splitfs/$directory")
    done
    # A loop device is told by the file behind it, which this node must know; the devices themselves are shared by all nodes.
    while read -r device file; do
        [ -z "$file" ] || fail "$node: loop device $device holds a file that was deleted: $file"
    done < <(on_node "$node" losetup --list --noheadings --output NAME,BACK-FILE | grep '(deleted)' | grep -F /emulated/splitfs- || true)
    while read -r file; do
        grep -qxF "${file%.*}" <<<"$known" || fail "$node: /var/lib/splitfs/agents/$file belongs to no volume"
    done < <(on_node "$node" sh -c 'cd /var/lib/splitfs/agents && ls -A . unserved 2>/dev/null | grep -vxE "[.a-z]*:||[.]reserve|supervisor.sock|handover.sock|program|own|pods|unserved"; true')
    # One agent for each volume that is mounted, and none besides.
    mounted=$(staged_on "$node")
    # shellcheck disable=SC2016  # expanded by the shell on the node
    agents=$(on_node "$node" sh -c 'cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\000" "\n" | grep -xEA 1 "/.*/splitfs" | grep -cx agent; true')
    expect "agents on $node" "$agents" -eq "$mounted"
}

# staged_on NODE: how many volumes are mounted there.
staged_on() {
    on_node "$1" sh -c 'grep -c " /var/lib/kubelet/plugins/kubernetes.io/csi/csi.splitfs.io/.*/globalmount " /proc/mounts; true' # 0 is told by the exit status, too
}
