# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# shellcheck disable=SC2034  # used by the other parts
# Names, addresses and directories of the local cluster.

# A second cluster beside the first one takes another name; everything on the machine carries it.
CLUSTER_NAME=${CLUSTER_NAME:-splitfs}
[[ $CLUSTER_NAME =~ ^[a-z][a-z0-9]{0,8}$ ]] ||
    usage_error "CLUSTER_NAME='$CLUSTER_NAME': wanted are 1 to 9 characters a-z and 0-9, a letter first"

# The state of a kind cluster is apart: removing one kind of cluster must not touch the other.
RUN=$SPLITFS_CACHE/run
[ "${CLUSTER:-local}" = local ] || RUN+=.$CLUSTER
[ "$CLUSTER_NAME" = splitfs ] || RUN+=-$CLUSTER_NAME
PKI=$RUN/pki
ADMIN_KUBECONFIG=$PKI/admin.kubeconfig
LOCK_FILE=$RUN.lock

# The bridge that joins the nodes lives in the machine's network namespace; its subnet is the first free one
# of NODE_NET_PREFIX.0.0/16 and is kept in $RUN/subnet.
BRIDGE=${CLUSTER_NAME}br0
NODE_NET_PREFIX=10.89
POD_NET_PREFIX=10.244
SERVICE_CIDR=10.96.0.0/16
SERVICE_API=10.96.0.1
SERVICE_DNS=10.96.0.10

# The path of every process, inside and outside the nodes.
CNI_BIN=/usr/lib/cni
PAUSE_IMAGE=localhost/splitfs/pause:1

CONTROL_PLANE_NODE=n1

# node_names COUNT: n1 n2 ...
node_names() {
    local i
    for ((i = 1; i <= $1; i++)); do
        printf 'n%d\n' "$i"
    done
}

# existing_nodes: the nodes that this state directory knows of.
existing_nodes() {
    local dir
    for dir in "$RUN"/nodes/*/; do
        [ -d "$dir" ] && basename "$dir"
    done
    return 0
}

node_dir() {
    printf '%s/nodes/%s\n' "$RUN" "$1"
}

node_index() {
    printf '%s\n' "${1#n}"
}

node_address() {
    printf '%s.%d\n' "$(subnet)" $((10 + $(node_index "$1")))
}

pod_cidr() {
    printf '%s.%d.0/24\n' "$POD_NET_PREFIX" "$(node_index "$1")"
}

# subnet: the first three numbers of the nodes' addresses, for example 10.89.0.
subnet() {
    cat "$RUN/subnet"
}

api_address() {
    node_address "$CONTROL_PLANE_NODE"
}
