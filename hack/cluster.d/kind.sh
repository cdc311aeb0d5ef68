# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# CLUSTER=kind: the same commands on a kind cluster, for machines that have Docker or rootful Podman. docs/kind.md says what of it is tested.

KIND_KUBECONFIG=$RUN/kind.kubeconfig
# Podman gives containers more open files and processes than most machines allow without CAP_SYS_RESOURCE.
KIND_PROCESSES=10000

# choose_provider: sets KIND_EXPERIMENTAL_PROVIDER, which kind itself reads, to docker or podman.
choose_provider() {
    case ${KIND_EXPERIMENTAL_PROVIDER:-} in
    docker | podman) ;;
    '')
        if docker info >/dev/null 2>&1; then
            KIND_EXPERIMENTAL_PROVIDER=docker
        elif command -v podman >/dev/null; then
            KIND_EXPERIMENTAL_PROVIDER=podman
        else
            die "CLUSTER=kind needs Docker, whose daemon answers, or Podman (apt-get install podman)"
        fi
        ;;
    *) die "KIND_EXPERIMENTAL_PROVIDER='$KIND_EXPERIMENTAL_PROVIDER': known are docker and podman" ;;
    esac
    export KIND_EXPERIMENTAL_PROVIDER
    [ "$KIND_EXPERIMENTAL_PROVIDER" = docker ] || prepare_podman
}

prepare_podman() {
    local capabilities
    need_root "kind with Podman"
    capabilities=$(awk '$1 == "CapEff:" { print $2 }' /proc/self/status)
    if [ -z "${CONTAINERS_CONF:-}" ] && ((!(16#$capabilities >> 24 & 1))); then # CAP_SYS_RESOURCE
        mkdir -p "$RUN"
        printf '[containers]\ndefault_ulimits = ["nofile=%s:%s", "nproc=%s:%s"]\n' "$(ulimit -Hn)" "$(ulimit -Hn)" \
            "$KIND_PROCESSES" "$KIND_PROCESSES" >"$RUN/containers.conf"
        export CONTAINERS_CONF=$RUN/containers.conf
    fi
    podman info >/dev/null || die "Podman does not work on this machine (see above)"
}

need_kind() {
    choose_provider
    "$HACK_DIR/build-tools" kind helm kubernetes
    KIND=$("$HACK_DIR/build-tools" --print-dir kind)/kind
    KUBECTL=$("$HACK_DIR/build-tools" --print-dir kubernetes)/kubectl
    HELM=$("$HACK_DIR/build-tools" --print-dir helm)/helm
}

kind_exists() {
    "$KIND" get clusters 2>/dev/null | grep -qxF "$CLUSTER_NAME"
}

kind_up() {
    need_kind
    [ -z "$1" ] || [ "$1" = "$(grep -c -- '- role:' "$HACK_DIR/kind.yaml")" ] ||
        die "with CLUSTER=kind the nodes are those of hack/kind.yaml: change it there"
    mkdir -p "$RUN"
    if kind_exists; then
        "$KIND" export kubeconfig --name "$CLUSTER_NAME" --kubeconfig "$KIND_KUBECONFIG"
        progress "kind cluster $CLUSTER_NAME is up already"
    else
        # KIND_NODE_IMAGE: a node image that is on this machine, where no registry can be asked.
        "$KIND" create cluster --name "$CLUSTER_NAME" --config "$HACK_DIR/kind.yaml" --kubeconfig "$KIND_KUBECONFIG" --wait 300s \
            ${KIND_NODE_IMAGE:+--image "$KIND_NODE_IMAGE"} || die "kind cannot make the cluster (see above); docs/kind.md says what it needs"
        progress "kind cluster $CLUSTER_NAME is up"
    fi
    touch "$RUN/complete"
}

kind_down() {
    need_kind
    "$KIND" delete cluster --name "$CLUSTER_NAME" --kubeconfig "$KIND_KUBECONFIG"
    rm -rf --one-file-system "$RUN"
}

kind_status() {
    need_kind
    kind_exists || {
        printf 'kind cluster %s is down\n' "$CLUSTER_NAME"
        return 1
    }
    "$KUBECTL" --kubeconfig "$KIND_KUBECONFIG" get nodes -o wide
    "$KUBECTL" --kubeconfig "$KIND_KUBECONFIG" wait --for=condition=Ready nodes --all --timeout=0s >/dev/null
}

kind_load_image() {
    local file
    need_kind
    for file in "$@"; do
        "$KIND" load image-archive "$file" --name "$CLUSTER_NAME"
    done
}

kind_kubectl() {
    need_kind >/dev/null
    exec "$KUBECTL" --kubeconfig "$KIND_KUBECONFIG" "$@"
}

kind_helm() {
    need_kind >/dev/null
    exec "$HELM" --kubeconfig "$KIND_KUBECONFIG" "$@"
}

kind_exec() {
    local node=$1
    shift
    choose_provider
    exec "$KIND_EXPERIMENTAL_PROVIDER" exec "$node" "$@"
}

kind_logs() {
    local node=$1 component=$2
    shift 2
    choose_provider
    exec "$KIND_EXPERIMENTAL_PROVIDER" exec "$node" journalctl --no-pager --unit "$component" "$@"
}
