# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The commands that use a running local cluster.

local_load_image() {
    local nodes
    mapfile -t nodes < <(existing_nodes)
    import_images "${nodes[@]}" -- "$@"
}

local_kubectl() {
    export KUBECONFIG=$ADMIN_KUBECONFIG KUBECACHEDIR=$RUN/kubectl-cache
    exec "$(tool kubernetes kubectl)" "$@"
}

# The user's own repositories and plugins have no part in this.
local_helm() {
    export KUBECONFIG=$ADMIN_KUBECONFIG
    export HELM_CACHE_HOME=$RUN/helm/cache HELM_CONFIG_HOME=$RUN/helm/config HELM_DATA_HOME=$RUN/helm/data
    exec "$(tool helm helm)" "$@"
}

local_exec() {
    NODE_PATH=$(dirname "$(tool containerd containerd)"):$NODE_PATH
    enter_node "$@"
}

# local_logs NODE COMPONENT [TAIL OPTIONS...]
local_logs() {
    local node=$1 component=$2 dir file
    shift 2
    dir=$(node_dir "$node")/log
    [ -d "$dir" ] || die "no node '$node' (nodes: $(existing_nodes | tr '\n' ' '))"
    file=$dir/$component.log
    [ -f "$file" ] || die "no output of '$component' on $node; there is: $(cd "$dir" && for f in *.log; do printf '%s ' "${f%.log}"; done)"
    exec tail -n +1 "$@" "$file"
}
