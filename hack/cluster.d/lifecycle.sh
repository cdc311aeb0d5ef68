# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Starting, repairing, showing and removing the cluster as a whole.
#
# Files below $RUN: `subnet`, `tools` (the programs it was started with), `pki/`, `nodes/NAME/`, and `complete`, written
# when everything was up. Without `complete` the directory is what a failed or killed start left.

# Where Debian keeps what the daemons call: iptables, conntrack, mount, mkfs.
NODE_PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

LOCAL_FAMILIES=(pause etcd containerd runc helm kubernetes)

# tool FAMILY PROGRAM: its path, of the build that this cluster was started with.
tool() {
    local dir
    dir=$(awk -v family="$1" '$1 == family { print $2 }' "$RUN/tools")
    printf '%s/%s\n' "$dir" "$2"
}

write_tools() {
    local family
    for family in "${LOCAL_FAMILIES[@]}"; do
        printf '%s %s\n' "$family" "$("$HACK_DIR/build-tools" --print-dir "$family")"
    done >"$RUN/tools"
    # The shim is looked up beside containerd.
    NODE_PATH=$(dirname "$(tool containerd containerd)"):$NODE_PATH
}

kubectl_admin() {
    KUBECONFIG=$ADMIN_KUBECONFIG KUBECACHEDIR=$RUN/kubectl-cache "$(tool kubernetes kubectl)" "$@"
}

check_machine() {
    local free
    [ "$(uname -m)" = x86_64 ] || die "the local cluster runs on x86-64 only, this machine is $(uname -m)"
    need_commands "run hack/install-deps cluster" iptables conntrack ip nsenter unshare losetup mount openssl tar setsid flock
    [ -x "$CNI_BIN/ptp" ] || die "missing: $CNI_BIN/ptp; run hack/install-deps cluster"
    grep -qw overlay /proc/filesystems || modprobe overlay 2>/dev/null || die "the kernel has no overlay file system"
    [ -c /dev/loop-control ] || modprobe loop 2>/dev/null || die "the kernel has no loop devices (/dev/loop-control)"
    mkdir -p "$SPLITFS_CACHE"
    case $(stat -f -c %T "$SPLITFS_CACHE") in
    overlayfs | tmpfs | nfs | ramfs)
        die "$SPLITFS_CACHE is on $(stat -f -c %T "$SPLITFS_CACHE"), which cannot hold a node's data: set SPLITFS_CACHE to a directory on a disk"
        ;;
    esac
    free=$(df --output=avail -BM "$SPLITFS_CACHE" | tail -n 1 | tr -dc 0-9)
    [ "$free" -ge 4096 ] || die "only $free MB free in $SPLITFS_CACHE, 4096 are needed: set SPLITFS_CACHE elsewhere"
}

# take_lock SECONDS: one command at a time may change the cluster. The lock is also held by the children of a start that
# was killed; they are ended. The file tells whose it is.
take_lock() {
    mkdir -p "$SPLITFS_CACHE"
    exec 9>>"$LOCK_FILE"
    if ! flock --wait "$1" 9; then
        ! recorded_pid "$LOCK_FILE" >/dev/null ||
            die "another hack/cluster is at work on $RUN; wait for it, or end it with hack/cluster down"
        cgroup_kill "$CLUSTER_NAME/up"
        flock --wait 60 9 || die "$LOCK_FILE is held by process(es) $(find /proc/[0-9]*/fd -lname "$LOCK_FILE" 2>/dev/null | cut -d/ -f3 | sort -u | tr '\n' ' ')"
    fi
    process_id $$ >"$LOCK_FILE"
}

cluster_complete() {
    local node
    [ -f "$RUN/complete" ] || return 1
    for node in $(existing_nodes); do
        node_pid "$node" >/dev/null || return 1
    done
}

leftovers() {
    local root
    [ ! -e "$RUN" ] || return 0
    [ ! -e "/sys/class/net/$BRIDGE" ] || return 0
    for root in $(cgroup_hierarchies); do
        [ ! -d "$root/$CLUSTER_NAME" ] || return 0
    done
    return 1
}

# local_up COUNT: COUNT is empty when the user did not ask for a number of nodes.
local_up() {
    local nodes
    need_root "starting the cluster"
    check_machine
    take_lock 1
    check_bridge_owner
    if cluster_complete; then
        mapfile -t nodes < <(existing_nodes)
        [ -z "$1" ] || [ "$1" = ${#nodes[@]} ] ||
            die "the cluster is up with ${#nodes[@]} node(s), not $1: run hack/cluster down first"
        NODE_PATH=$(dirname "$(tool containerd containerd)"):$NODE_PATH
        start_daemons "${nodes[@]}"
        progress "cluster $CLUSTER_NAME is up: ${#nodes[@]} node(s) Ready"
        return
    fi
    if leftovers; then
        progress "removing what an earlier start left"
        teardown
    fi
    "$HACK_DIR/build-tools" "${LOCAL_FAMILIES[@]}"

    mapfile -t nodes < <(node_names "${1:-2}")
    trap 'start_failed' EXIT
    mkdir -p "$RUN/nodes"
    create_bridge
    cgroup_mark "$CLUSTER_NAME/up"
    write_tools
    create_pki "${nodes[@]}"
    progress "certificates made"
    start_nodes "${nodes[@]}"
    start_daemons "${nodes[@]}"
    wait_until 180 "ServiceAccount default" kubectl_admin get serviceaccount default ||
        die "the controller manager made no ServiceAccount; see hack/cluster logs $CONTROL_PLANE_NODE kube-controller-manager"
    refuse_dns
    touch "$RUN/complete"
    trap - EXIT
    progress "cluster $CLUSTER_NAME is up: ${#nodes[@]} node(s) Ready"
}

start_failed() {
    local status=$?
    [ "$status" = 0 ] || printf '%s: the start failed; logs stay in %s until hack/cluster down or the next up\n' \
        "${0##*/}" "$RUN/nodes/*/log" >&2
}

start_nodes() {
    local node
    for node in "$@"; do
        create_node "$node"
    done
    connect_pods "$@"
    progress "namespaces and network of $* made"
}

# start_daemons NODE...: start what is not running, in the order of need; containerd and images while the API comes up.
start_daemons() {
    local node component cp=$CONTROL_PLANE_NODE containers archive
    start_etcd "$cp"
    start_apiserver "$cp"
    (
        for node in "$@"; do
            start_containerd "$node"
        done
        for node in "$@"; do
            wait_component 300 "$node" containerd containerd_answers "$node"
        done
        progress "containerd answers on $*"
        archive=$(pause_archive)
        import_images "$@" -- "$archive"
    ) &
    containers=$!
    wait_component 300 "$cp" kube-apiserver api_ready
    progress "API server is ready"
    start_controllers "$cp"
    wait "$containers" || exit 1 # it has said why
    for node in "$@"; do
        start_kubelet "$node"
        start_kube_proxy "$node"
    done
    for node in "$@"; do
        wait_component 300 "$node" kubelet node_ready "$node"
    done
    for node in "$@"; do
        for component in $(components_of "$node"); do
            component_running "$node" "$component" || component_failed "$node" "$component"
        done
    done
}

node_ready() {
    kubectl_admin wait --for=condition=Ready "node/$1" --timeout=2s
}

local_down() {
    need_root "removing the cluster"
    check_bridge_owner
    # A start that is still at work, or children of one that was killed, would go on making things.
    cgroup_kill "$CLUSTER_NAME/up"
    take_lock 60
    if ! leftovers; then
        progress "cluster $CLUSTER_NAME: nothing to remove"
        return
    fi
    teardown
    progress "cluster $CLUSTER_NAME is removed"
}

# teardown: remove everything, whatever state it is in.
teardown() {
    local node
    for node in $(existing_nodes); do
        end_node "$node"
    done
    cgroup_kill "$CLUSTER_NAME"
    remove_links
    cgroup_remove "$CLUSTER_NAME"
    [ -d "$RUN" ] || return 0
    detach_loops
    # Nothing is ever mounted there outside of the nodes; should it be, its data must not be deleted.
    ! grep -qF " $RUN/" /proc/self/mountinfo ||
        die "still mounted below $RUN, not removed: $(awk -v run="$RUN/" 'index($5, run) == 1 { print $5 }' /proc/self/mountinfo | tr '\n' ' ')"
    rm -rf --one-file-system "$RUN"
}

# end_node NODE: the holder ends by itself once it has seen the node's first process end.
end_node() {
    kill_recorded "$(node_dir "$1")/init"
    if [ -f "$(node_dir "$1")/init" ]; then
        wait_until 5 "end of the holder of $1" process_gone "$(node_dir "$1")/holder" || warn "ending the holder of $1 by force"
    fi
    kill_recorded "$(node_dir "$1")/holder"
}

# local_status: a table of the daemons; fails unless all of them run and all nodes are Ready.
local_status() {
    local node component state bad=0
    if [ ! -d "$RUN" ]; then
        printf 'cluster %s is down\n' "$CLUSTER_NAME"
        return 1
    fi
    [ -f "$RUN/complete" ] || {
        printf 'cluster %s did not start completely; hack/cluster up starts it anew\n' "$CLUSTER_NAME"
        bad=1
    }
    printf '%-6s %-26s %s\n' NODE COMPONENT STATE
    for node in $(existing_nodes); do
        for component in $(components_of "$node"); do
            state=running
            component_running "$node" "$component" || { state='not running' bad=1; }
            printf '%-6s %-26s %s\n' "$node" "$component" "$state"
        done
    done
    printf '\n'
    kubectl_admin --request-timeout=5s get nodes -o wide || bad=1
    kubectl_admin --request-timeout=5s wait --for=condition=Ready nodes --all --timeout=0s >/dev/null 2>&1 || bad=1
    return "$bad"
}
