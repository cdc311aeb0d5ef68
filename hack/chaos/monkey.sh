# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Kills processes in the nodes of the local cluster. To be sourced after e2e/lib.sh, with LOGS set.

VICTIMS=(agent agents-supervisor node-service provisioner controller resizer injector writer postgres redis git attacker kubelet containerd api-server upgrade)

check_victims() {
    local victim known
    for victim in ${1//,/ }; do
        for known in "${VICTIMS[@]}"; do
            [ "$victim" != "$known" ] || continue 2
        done
        usage_error "unknown victim '$victim'; known: ${VICTIMS[*]}"
    done
}

# driver_ready: all pods of the release are there and ready.
driver_ready() {
    kube --namespace "$RELEASE_NAMESPACE" rollout status daemonset,deployment -l app.kubernetes.io/name=splitfs --timeout=5s
}

# pattern VICTIM: what its command line looks like; of several processes one is killed.
pattern() {
    case $1 in
    agent) echo '^/[^ ]*/splitfs agent /' ;;
    agents-supervisor) echo '^/usr/local/bin/splitfs-csi agents ' ;;
    node-service) echo '^/usr/local/bin/splitfs-csi node ' ;;
    provisioner) echo '^/usr/local/bin/csi-provisioner ' ;;
    controller) echo '^/usr/local/bin/splitfs-csi controller ' ;;
    resizer) echo '^/usr/local/bin/csi-resizer ' ;;
    injector) echo '^/splitfs-injector ' ;;
    writer) echo ' chaos-w[0-9]+ [0-9]+$' ;;
    attacker) echo ' chaos-a[0-9]+ [0-9]+$' ;;
    postgres) echo '^(postgres: |/[^ ]*/postgres -D /data/pg )' ;;
    redis) echo '^redis-(server|aof-rewrite)' ;;
    git) echo '^git commit ' ;;
    kubelet) echo '^[^ ]*/kubelet --' ;;
    containerd) echo '^[^ ]*/containerd --' ;;
    api-server) echo '^[^ ]*/kube-apiserver --' ;;
    esac
}

# kill_one VICTIM NODE...: on the first of these nodes that has such a process; says where.
kill_one() {
    local victim=$1 node
    shift
    for node in "$@"; do
        # shellcheck disable=SC2016  # expanded by the shell in the node
        if "$HACK_DIR/cluster" exec "$node" sh -c 'pid=$(pgrep -f -- "$1" | grep -vx "$$" | shuf -n 1) && [ -n "$pid" ] && kill -KILL "$pid"' monkey "$(pattern "$victim")" 2>/dev/null; then
            printf '%s\n' "$node"
            return
        fi
    done
    return 1
}

# upgrade NUMBER: the release, with other arguments for the programs on the nodes; nobody waits for the rollout.
upgrade() {
    "$HACK_DIR/cluster" helm upgrade splitfs "$REPO_DIR/charts/splitfs" --namespace "$RELEASE_NAMESPACE" --reuse-values \
        --set "node.logLevel=$((2 + $1 % 2)),agents.logLevel=$((2 + $1 / 2 % 2))" >>"$LOGS/up.log" 2>&1
}

# monkey SEED SECONDS: until there is a file $LOGS/over. What is a daemon of the node comes back some seconds later; kubelet and Kubernetes
# bring back the others.
monkey() {
    local victim node nodes
    trap - EXIT
    set +e
    RANDOM=$(($1 % 32768))
    mapfile -t nodes < <(kube get nodes -o jsonpath='{range .items[*]}{.metadata.name}{"\n"}{end}')
    while [ ! -e "$LOGS/over" ]; do
        sleep $((RANDOM % (2 * $2) + 1))
        victim=${VICTIMS[RANDOM % ${#VICTIMS[@]}]}
        # Another node begins each time.
        node=$((RANDOM % ${#nodes[@]}))
        if [ "$victim" = upgrade ]; then
            upgrade "$RANDOM" || continue
            node=all
        else
            node=$(kill_one "$victim" "${nodes[@]:node}" "${nodes[@]:0:node}") || continue
        fi
        printf '%d %s %s\n' "$SECONDS" "$victim" "$node" >>"$LOGS/kills.log"
        case $victim in
        kubelet | containerd | api-server)
            sleep $((RANDOM % 4))
            "$HACK_DIR/cluster" up >>"$LOGS/up.log" 2>&1 || printf '%d hack/cluster up failed\n' "$SECONDS" >>"$LOGS/up.log"
            ;;
        esac
    done
}
