# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# CLUSTER=kind: the same commands on a kind cluster, for machines that have Docker. Not covered by the project's tests.

KIND_KUBECONFIG=$RUN/kind.kubeconfig

need_kind() {
    need_commands "CLUSTER=kind needs Docker and kind (go install sigs.k8s.io/kind@v0.33.0), kubectl and helm" docker kind kubectl helm
    docker info >/dev/null 2>&1 || die "Docker does not answer: is its daemon running, and may you use it?"
}

kind_exists() {
    kind get clusters 2>/dev/null | grep -qxF "$CLUSTER_NAME"
}

kind_up() {
    need_kind
    [ -z "$1" ] || [ "$1" = "$(grep -c -- '- role:' "$HACK_DIR/kind.yaml")" ] ||
        die "with CLUSTER=kind the nodes are those of hack/kind.yaml: change it there"
    mkdir -p "$RUN"
    if kind_exists; then
        kind export kubeconfig --name "$CLUSTER_NAME" --kubeconfig "$KIND_KUBECONFIG"
        progress "kind cluster $CLUSTER_NAME is up already"
    else
        kind create cluster --name "$CLUSTER_NAME" --config "$HACK_DIR/kind.yaml" --kubeconfig "$KIND_KUBECONFIG" --wait 300s
        progress "kind cluster $CLUSTER_NAME is up"
    fi
    touch "$RUN/complete"
}

kind_down() {
    need_kind
    kind delete cluster --name "$CLUSTER_NAME" --kubeconfig "$KIND_KUBECONFIG"
    rm -rf --one-file-system "$RUN"
}

kind_status() {
    need_kind
    kind_exists || {
        printf 'kind cluster %s is down\n' "$CLUSTER_NAME"
        return 1
    }
    kubectl --kubeconfig "$KIND_KUBECONFIG" get nodes -o wide
    kubectl --kubeconfig "$KIND_KUBECONFIG" wait --for=condition=Ready nodes --all --timeout=0s >/dev/null
}

kind_load_image() {
    local file
    for file in "$@"; do
        kind load image-archive "$file" --name "$CLUSTER_NAME"
    done
}

kind_kubectl() {
    exec kubectl --kubeconfig "$KIND_KUBECONFIG" "$@"
}

kind_helm() {
    exec helm --kubeconfig "$KIND_KUBECONFIG" "$@"
}

kind_exec() {
    local node=$1
    shift
    exec docker exec "$node" "$@"
}

kind_logs() {
    local node=$1 component=$2
    shift 2
    exec docker exec "$node" journalctl --no-pager --unit "$component" "$@"
}
