# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Every process of the cluster lives in cgroups of its own, named after the cluster, so that the nodes' limits are apart
# from the machine's and so that nothing can be lost sight of: what is in these groups is ours, and only that.
#
#   <hierarchy>/CLUSTER/up       the `hack/cluster up` that is at work
#   <hierarchy>/CLUSTER/n1 ...   the nodes; each is the root of its node's cgroup namespace
#
# With cgroup v2 a group that has children may hold no processes, so a node's own daemons are in n1/system there.

CGROUP_V2_CONTROLLERS=(cpuset cpu io memory hugetlb pids)

cgroup_v2() {
    [ -f /sys/fs/cgroup/cgroup.controllers ]
}

# cgroup_v1_mounts: "DIRECTORY OPTIONS" of every v1 hierarchy, the options being what mounts the same one again.
cgroup_v1_mounts() {
    awk '{
        for (i = 7; $i != "-"; i++) continue
        if ($(i + 1) != "cgroup" || seen[$5]++) next
        n = split($(i + 3), given, ","); options = ""
        for (j = 1; j <= n; j++)
            if (given[j] !~ /^(rw|ro|xattr|clone_children|release_agent=.*)$/)
                options = options (options == "" ? "" : ",") given[j]
        print $5, (options ~ /^name=/ ? "none," : "") options
    }' /proc/self/mountinfo
}

# cgroup_hierarchies: the directories below which groups are made.
cgroup_hierarchies() {
    if cgroup_v2; then
        printf '/sys/fs/cgroup\n'
    else
        cgroup_v1_mounts | cut -d' ' -f1
    fi
}

# cgroup_v2_delegate GROUP: let the children of GROUP use every controller that GROUP has.
cgroup_v2_delegate() {
    local controller
    for controller in "${CGROUP_V2_CONTROLLERS[@]}"; do
        if grep -qw "$controller" "$1/cgroup.controllers"; then
            printf '+%s\n' "$controller" >"$1/cgroup.subtree_control"
        fi
    done
}

# cgroup_create PATH: make the group in every hierarchy, ready to take processes.
cgroup_create() {
    local root group part
    for root in $(cgroup_hierarchies); do
        group=$root
        for part in ${1//\// }; do
            ! cgroup_v2 || cgroup_v2_delegate "$group"
            group=$group/$part
            mkdir -p "$group"
            cgroup_v2 || cgroup_v1_prepare "$group"
        done
    done
}

cgroup_v1_prepare() {
    # A cpuset starts without processors and memory nodes, and refuses processes until it has some.
    if [ -f "$1/cpuset.cpus" ]; then
        cat "$1/../cpuset.cpus" >"$1/cpuset.cpus"
        cat "$1/../cpuset.mems" >"$1/cpuset.mems"
        printf '1\n' >"$1/cgroup.clone_children"
    fi
    # A group weighs as much as one task beside its siblings: raised, or the cluster starves on a busy machine.
    [ ! -f "$1/cpu.shares" ] || printf '8192\n' >"$1/cpu.shares"
}

# cgroup_join PATH: move the calling subshell in every hierarchy.
cgroup_join() {
    local root
    for root in $(cgroup_hierarchies); do
        printf '%s\n' "$BASHPID" >"$root/$1/cgroup.procs"
    done
}

# cgroup_mark PATH: move this script in one hierarchy only, enough to be found again by cgroup_pids. The group is made bare.
cgroup_mark() {
    local root
    root=$(cgroup_hierarchies | grep -m 1 -E 'pids|cgroup$')
    [ -n "$root" ] || die "no cgroup hierarchy with the pids controller is mounted under /sys/fs/cgroup; kubelet needs one"
    mkdir -p "$root/$1"
    printf '%s\n' $$ >"$root/$1/cgroup.procs"
}

# cgroup_pids PATH: every process in the group and below it, in any hierarchy.
cgroup_pids() {
    local root
    for root in $(cgroup_hierarchies); do
        # Groups may vanish while they are read; whoever calls this to kill asks again.
        [ ! -d "$root/$1" ] || find "$root/$1" -name cgroup.procs -exec cat {} + 2>/dev/null || true
    done | sort -un
}

cgroup_empty() {
    [ -z "$(cgroup_pids "$1")" ]
}

# cgroup_kill PATH: end every process in the group.
cgroup_kill() {
    local end=$((SECONDS + 60)) pid pids
    while pids=$(cgroup_pids "$1") && [ -n "$pids" ]; do
        [ "$SECONDS" -lt "$end" ] || die "processes in cgroup $1 cannot be ended: $(tr '\n' ' ' <<<"$pids")"
        for pid in $pids; do
            kill -KILL "$pid" 2>/dev/null || true # gone already, or about to be: the next round looks again
        done
        sleep 0.1
    done
}

# cgroup_remove PATH: remove the group and everything below it; its processes must be gone.
cgroup_remove() {
    local root
    for root in $(cgroup_hierarchies); do
        # A group stays busy for a moment after its last process has gone.
        [ ! -d "$root/$1" ] || wait_until 20 "removal of cgroup $root/$1" cgroup_remove_tree "$root/$1"
    done
}

cgroup_remove_tree() {
    [ ! -d "$1" ] || find "$1" -depth -type d -exec rmdir {} +
}
