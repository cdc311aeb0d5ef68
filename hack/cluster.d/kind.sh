# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# CLUSTER=kind: the same commands on a kind cluster, for machines that have Docker or rootful Podman. docs/kind.md says what of it is tested.

KIND_KUBECONFIG=$RUN/kind.kubeconfig
# Podman gives containers more open files and processes than most machines allow without CAP_SYS_RESOURCE.
KIND_PROCESSES=10000

choose_provider() {
    choose_kind_provider
    [ "$KIND_EXPERIMENTAL_PROVIDER" = docker ] || prepare_podman
}

prepare_podman() {
    local capabilities
    need_root "kind with Podman"
    capabilities=$(awk '$1 == "CapEff:" { print $2 }' /proc/self/status)
    if [ -z "${CONTAINERS_CONF:-}" ]; then
        mkdir -p "$RUN"
        {
            # The nodes find each other by name, which Podman's older network (CNI) does not do by itself.
            [ ! -x /usr/lib/podman/aardvark-dns ] || printf '[network]\nnetwork_backend = "netavark"\n'
            if ((!(16#$capabilities >> 24 & 1))); then # CAP_SYS_RESOURCE
                printf '[containers]\ndefault_ulimits = ["nofile=%s:%s", "nproc=%s:%s"]\n' "$(ulimit -Hn)" "$(ulimit -Hn)" \
                    "$KIND_PROCESSES" "$KIND_PROCESSES"
            fi
        } >"$RUN/containers.conf"
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

# kind_create: KIND_NODE_IMAGE is a node image that is on this machine, or "own", the one of hack/kind-image, where no registry can be asked.
kind_create() {
    local image=${KIND_NODE_IMAGE:-} wait=300s config=$HACK_DIR/kind.yaml
    [ -d /lib/modules ] || mkdir -p /lib/modules # kind mounts it
    if [ "$image" = own ]; then
        "$HACK_DIR/kind-image"
        image=$("$HACK_DIR/kind-image" --print-name)
        # It has no program that looks after the pods' network: the nodes are told of it below.
        wait=0s config=$RUN/kind.yaml
        { cat "$HACK_DIR/kind.yaml" && printf 'networking:\n  disableDefaultCNI: true\n'; } >"$config"
    fi
    "$KIND" create cluster --name "$CLUSTER_NAME" --config "$config" --kubeconfig "$KIND_KUBECONFIG" --wait "$wait" \
        ${image:+--image "$image"} || die "kind cannot make the cluster (see above); docs/kind.md says what it needs"
    if [ "${KIND_NODE_IMAGE:-}" = own ]; then
        kind_connect_pods
        "$KUBECTL" --kubeconfig "$KIND_KUBECONFIG" wait --for=condition=Ready nodes --all --timeout=300s
    fi
}

# kind_connect_pods: a bridge for the pods of each node, and routes to those of every other one.
kind_connect_pods() {
    local nodes node address subnet other
    nodes=$("$KUBECTL" --kubeconfig "$KIND_KUBECONFIG" get nodes \
        -o jsonpath='{range .items[*]}{.metadata.name} {.status.addresses[?(@.type=="InternalIP")].address} {.spec.podCIDR}{"\n"}{end}')
    while read -r node _ subnet; do
        jq -n --arg subnet "$subnet" '{cniVersion: "0.4.0", name: "pods", plugins: [
            {type: "bridge", bridge: "cni0", isGateway: true, ipMasq: true, hairpinMode: true,
                ipam: {type: "host-local", ranges: [[{subnet: $subnet}]], routes: [{dst: "0.0.0.0/0"}]}},
            {type: "portmap", capabilities: {portMappings: true}}]}' |
            "$KIND_EXPERIMENTAL_PROVIDER" exec -i "$node" sh -c 'mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/10-pods.conflist'
        while read -r other address subnet; do
            [ "$other" = "$node" ] || "$KIND_EXPERIMENTAL_PROVIDER" exec "$node" ip route replace "$subnet" via "$address" </dev/null
        done <<<"$nodes"
    done <<<"$nodes"
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
        kind_create
        progress "kind cluster $CLUSTER_NAME is up"
    fi
    touch "$RUN/complete"
}

# kind_volumes: device and inode of the files behind the nodes' emulated volumes, as losetup prints them.
kind_volumes() {
    local node device inode
    for node in $("$KIND" get nodes --name "$CLUSTER_NAME" 2>/dev/null); do
        # Nodes without the driver have no such directory.
        "$KIND_EXPERIMENTAL_PROVIDER" exec "$node" sh -euc '[ ! -d /var/lib/splitfs ] || find /var/lib/splitfs -xdev -type f -name "*.img" -printf "%D %i\n"' ||
            warn "$node does not say which loop devices its volumes have: some may stay (losetup --list)"
    done | while read -r device inode; do
        printf '%d:%d %s\n' $((device / 256)) $((device % 256)) "$inode"
    done
}

# kind_detach VOLUMES: loop devices are the machine's, and outlive the nodes that attached them.
kind_detach() {
    local name device inode
    while read -r name device inode; do
        [ -z "$inode" ] || ! grep -qxF "$device $inode" <<<"$1" || losetup --detach "$name"
    done < <(losetup --list --noheadings --output NAME,BACK-MAJ:MIN,BACK-INO)
}

kind_down() {
    local volumes
    need_kind
    volumes=$(kind_volumes)
    "$KIND" delete cluster --name "$CLUSTER_NAME" --kubeconfig "$KIND_KUBECONFIG"
    [ -z "$volumes" ] || kind_detach "$volumes"
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
