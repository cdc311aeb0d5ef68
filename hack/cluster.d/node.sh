# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# A node is a set of namespaces (mount, network, PID, UTS, IPC, cgroup) held by its first process. Ending that one
# process ends everything in the node, and its mounts and network devices go with the namespaces.
#
# Files of a node, below its node_dir:
#   holder      the process outside that waits for the node's first process (recorded before it does anything)
#   init        the node's first process
#   components/ its daemons, as pids of the node
#   log/        their output
#   upper, work, root   the node's root file system: the machine's own, with all changes kept here
#   var-lib     /var/lib of the node, on a real file system, because overlays cannot be stacked

# node_group NODE: the cgroup that the node's daemons are in.
node_group() {
    if cgroup_v2; then
        printf '%s/%s/system\n' "$CLUSTER_NAME" "$1"
    else
        printf '%s/%s\n' "$CLUSTER_NAME" "$1"
    fi
}

# node_pid NODE: the node's first process, as the machine sees it; fails when the node is not running.
node_pid() {
    local pid
    pid=$(recorded_pid "$(node_dir "$1")/init") || return 1
    # While it ends it is still listed, but can no longer be entered.
    [ -e "/proc/$pid/ns/mnt" ] || return 1
    printf '%s\n' "$pid"
}

# create_node NODE
create_node() {
    local node=$1 dir holder pid
    dir=$(node_dir "$node")
    mkdir -p "$dir"/{upper,work,root,log,components,var-lib}
    cgroup_create "$CLUSTER_NAME/$node"
    (
        close_inherited
        cgroup_join "$CLUSTER_NAME/$node"
        process_id "$BASHPID" >"$dir/holder"
        # --kill-child: ending the holder ends the node, even before anybody has recorded the node's first process.
        exec setsid unshare --mount --net --pid --uts --ipc --cgroup --fork --kill-child --propagation private \
            env CLUSTER_NAME="$CLUSTER_NAME" SPLITFS_CACHE="$SPLITFS_CACHE" PAUSE="$(tool pause pause)" \
            "$HACK_DIR/cluster.d/node-init" "$node"
    ) </dev/null >"$dir/log/init.log" 2>&1 &
    holder=$!
    ! cgroup_v2 || move_holder "$node" "$holder"
    wait_until 30 "node $node" node_initialised "$node" "$holder" || {
        cat "$dir/log/init.log" >&2
        die "node $node did not come up (its output is above)"
    }
    pid=$(tr -d ' ' <"/proc/$holder/task/$holder/children")
    process_id "$pid" >"$dir/init"
    connect_node "$node" "$pid"
}

# node_initialised NODE HOLDER
node_initialised() {
    [ ! -f "$(node_dir "$1")/ready" ] || return 0
    process_start "$2" >/dev/null || return "$GIVE_UP"
    return 1
}

# move_holder NODE PID: with cgroup v2 the node's root group must hold no process, and the holder is in it until its
# namespaces exist.
move_holder() {
    wait_until 10 "namespaces of node $1" own_cgroup_namespace "$2"
    mkdir -p "/sys/fs/cgroup/$CLUSTER_NAME/$1/system"
    printf '%s\n' "$2" >"/sys/fs/cgroup/$CLUSTER_NAME/$1/system/cgroup.procs"
}

own_cgroup_namespace() {
    [ "$(readlink "/proc/$1/ns/cgroup")" != "$(readlink /proc/self/ns/cgroup)" ]
}

# enter_node NODE COMMAND...: become COMMAND inside the node, in its cgroups; meant for subshells, as it does not return.
enter_node() {
    local node=$1 pid
    shift
    pid=$(node_pid "$node") || die "node '$node' is not running (nodes: $(existing_nodes | tr '\n' ' ')); see hack/cluster status"
    cgroup_join "$(node_group "$node")"
    exec nsenter -t "$pid" -a -- env -i PATH="$NODE_PATH" HOME=/root TERM="${TERM:-dumb}" LANG=C.UTF-8 "$@" 9>&-
}

# in_node NODE COMMAND...: run COMMAND inside the node and return its status.
in_node() {
    (enter_node "$@")
}

# component_running NODE COMPONENT
component_running() {
    local pid
    pid=$(node_pid "$1") || return 1
    recorded_pid "$(node_dir "$1")/components/$2" "/proc/$pid/root/proc" >/dev/null
}

# start_component NODE COMPONENT COMMAND...: start a daemon inside the node, unless it is running.
start_component() {
    local node=$1 component=$2 dir pid
    shift 2
    ! component_running "$node" "$component" || return 0
    dir=$(node_dir "$node")
    # The shell ends at once, so the daemon is a child of the node's first process and of nothing outside the node.
    # shellcheck disable=SC2016  # expanded by the inner shell
    pid=$(close_inherited && in_node "$node" sh -c 'log=$1; shift; setsid "$@" </dev/null >>"$log" 2>&1 & echo $!' \
        sh "$dir/log/$component.log" "$@")
    process_id "$pid" "/proc/$(node_pid "$node")/root/proc" >"$dir/components/$component" ||
        component_failed "$node" "$component"
}

# component_failed NODE COMPONENT: show the end of its log and give up.
component_failed() {
    printf 'last lines of %s on %s:\n' "$2" "$1" >&2
    tail -n 15 "$(node_dir "$1")/log/$2.log" >&2
    die "$2 on $1 does not run; all of its output: hack/cluster logs $1 $2"
}

# wait_component SECONDS NODE COMPONENT COMMAND...: until COMMAND succeeds, but no longer than the daemon lives.
wait_component() {
    local limit=$1 node=$2 component=$3
    shift 3
    wait_until "$limit" "$component on $node" component_answers "$node" "$component" "$@" ||
        component_failed "$node" "$component"
}

component_answers() {
    local node=$1 component=$2
    shift 2
    component_running "$node" "$component" || return "$GIVE_UP"
    "$@"
}
