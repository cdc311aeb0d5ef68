# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# One bridge on the machine, one pair of virtual Ethernet devices per node, static routes between the pod networks.
# Nothing else of the machine's network is touched: kube-proxy and the CNI plugins write into the nodes' own namespaces.

# choose_subnet: the first /24 that no interface or route of the machine uses.
choose_subnet() {
    local third used
    used=$(ip -4 -o addr show; ip -4 route show table all)
    for ((third = 0; third < 256; third++)); do
        if ! grep -qF " $NODE_NET_PREFIX.$third." <<<"$used"; then
            printf '%s.%d\n' "$NODE_NET_PREFIX" "$third"
            return
        fi
    done
    die "no free subnet in $NODE_NET_PREFIX.0.0/16 for the nodes"
}

# The bridge carries its owner's state directory as alias: a cluster of the same name that was started with another cache
# is never taken for a leftover.
check_bridge_owner() {
    local owner
    owner=$(cat "/sys/class/net/$BRIDGE/ifalias" 2>/dev/null) || return 0
    [ -z "$owner" ] || [ "$owner" = "$RUN" ] ||
        die "a cluster named $CLUSTER_NAME is up already, with its state in $owner (SPLITFS_CACHE differs); set CLUSTER_NAME for a second one"
}

create_bridge() {
    choose_subnet >"$RUN/subnet"
    ip link add "$BRIDGE" type bridge
    ip link set "$BRIDGE" alias "$RUN"
    ip addr add "$(subnet).1/24" dev "$BRIDGE"
    ip link set "$BRIDGE" up
    # Docker drops forwarded packets, and bridged ones count as forwarded when this is on.
    if [ "$(cat /proc/sys/net/bridge/bridge-nf-call-iptables 2>/dev/null)" = 1 ] &&
        iptables -S FORWARD 2>/dev/null | grep -q -- '-P FORWARD DROP'; then
        warn "this machine drops forwarded packets (Docker does): should nodes not reach each other, use NODES=1 or CLUSTER=kind"
    fi
}

# The machine's end of a node's link. Interface names hold 15 characters at most.
node_link() {
    printf '%sv%s\n' "$CLUSTER_NAME" "$1"
}

# connect_node NODE PID
connect_node() {
    local link
    link=$(node_link "$1")
    ip link add "$link" type veth peer name eth0 netns "$2"
    ip link set "$link" master "$BRIDGE" up
    nsenter -t "$2" -n sh -euc "
        ip addr add $(node_address "$1")/24 dev eth0
        ip link set eth0 up
        ip link set lo up
        ip route add default via $(subnet).1"
}

# connect_pods NODE...: on each node a route to the pods of every other one.
connect_pods() {
    local here there pid
    for here in "$@"; do
        pid=$(node_pid "$here")
        for there in "$@"; do
            [ "$here" = "$there" ] ||
                nsenter -t "$pid" -n ip route replace "$(pod_cidr "$there")" via "$(node_address "$there")"
        done
    done
}

# A veth device goes with the namespace its other end is in, but not at once, and not when the node never came up.
remove_links() {
    local link
    for link in $(ip -o link show | awk -F': ' '{ print $2 }' | sed 's/@.*//'); do
        if [[ $link =~ ^${CLUSTER_NAME}(vn[0-9]+|br0)$ ]]; then
            ip link del "$link" 2>/dev/null || ! ip link show "$link" >/dev/null 2>&1 ||
                die "network device $link cannot be removed"
        fi
    done
}
