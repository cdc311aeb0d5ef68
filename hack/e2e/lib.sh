# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the end-to-end tests and the quickstart share: claims and pods in one namespace, the state of a volume as its node
# sees it, and the death of a container. To be sourced after lib/common.sh, with NAMESPACE set.

# How many times longer than on the machine where a limit was found something may take. What succeeds waits no longer for it.
PATIENCE=${PATIENCE:-4}
APPS_IMAGE=${APPS_IMAGE:-localhost/splitfs/apps:dev}
RELEASE_NAMESPACE=${RELEASE_NAMESPACE:-splitfs-system}
NODE_LABELS=app.kubernetes.io/name=splitfs,app.kubernetes.io/component=node
kube() {
    "$HACK_DIR/cluster" kubectl "$@"
}

# within SECONDS: what kubectl and helm take as a timeout.
within() {
    printf '%ds\n' $(($1 * PATIENCE))
}

# k: kubectl in the test's namespace.
k() {
    kube --namespace "$NAMESPACE" "$@"
}

# say TEXT...: evidence. The runner shows it beside the result.
say() {
    printf '  %s\n' "$*"
}

fail() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}

# expect WHAT ACTUAL OPERATOR EXPECTED: numbers with -eq -ge ..., text with = or contains.
expect() {
    case $3 in
    -*) [[ $2 =~ ^-?[0-9]+$ ]] && test "$2" "$3" "$4" ;;
    =) [ "$2" = "$4" ] ;;
    contains) [[ $2 == *"$4"* ]] ;;
    esac || fail "$1: got '$2', expected $3 '$4'"
}

# make_namespace [LABEL]: the namespace is new, so that a name in it is never one of an earlier run.
make_namespace() {
    kube create -f - <<EOF >/dev/null
apiVersion: v1
kind: Namespace
metadata: {name: $NAMESPACE, labels: {${1:-}}}
EOF
    # The first pod of a namespace is refused while its service account does not exist.
    wait_until 30 "service account of namespace $NAMESPACE" k get serviceaccount default
}

# claim NAME SIZE CLASS
claim() {
    k apply -f - <<EOF >/dev/null
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: $1}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: $3
  resources: {requests: {storage: $2}}
EOF
}

# wait_ready POD [SECONDS]
wait_ready() {
    k wait --for=condition=Ready "pod/$1" "--timeout=$(within "${2:-90}")" >/dev/null || fail "pod $1 is not ready"
}

# wait_restarted POD CONTAINER: the container has been started a second time and runs.
wait_restarted() {
    wait_until 60 "restart of container $2 of pod $1" restarted "$1" "$2" || fail "container $2 of pod $1 did not come back"
}

restarted() {
    local state
    state=$(k get pod "$1" -o jsonpath="{.status.containerStatuses[?(@.name=='$2')].restartCount} {.status.containerStatuses[?(@.name=='$2')].state.running.startedAt}")
    [[ $state =~ ^[1-9][0-9]*\ [0-9] ]]
}

# in_pod POD CONTAINER COMMAND...
in_pod() {
    local pod=$1 container=$2
    shift 2
    k exec "$pod" -c "$container" -- "$@"
}

# node_pod NODE: our pod on that node.
node_pod() {
    # One that is going still runs for a while.
    kube --namespace "$RELEASE_NAMESPACE" get pods -l "$NODE_LABELS" --field-selector "spec.nodeName=$1,status.phase=Running" -o json |
        jq --exit-status --raw-output 'first(.items[].metadata | select(.deletionTimestamp == null) | .name)' || fail "no running pod of the driver on node $1"
}

# another_node_service NODE POD: the driver is ready on that node, in another pod. What a DaemonSet says may be of before a pod was deleted.
another_node_service() {
    kube --namespace "$RELEASE_NAMESPACE" get pods -l "$NODE_LABELS" --field-selector "spec.nodeName=$1" -o json |
        jq --exit-status --arg before "$2" 'any(.items[]; .metadata.name != $before and .metadata.deletionTimestamp == null and
            any(.status.conditions[]?; .type == "Ready" and .status == "True"))'
}

# replace_node_service NODE [OPTION...]: its pod is deleted, and the next one is ready.
replace_node_service() {
    local pod
    pod=$(node_pod "$1")
    kube --namespace "$RELEASE_NAMESPACE" delete pod "$pod" "${@:2}" >/dev/null 2>&1
    wait_until 120 "the next node service on $1" another_node_service "$1" "$pod" || fail "node $1 has no node service again"
}

# on_node NODE COMMAND...: inside the driver's container, which sees the processes and the volumes of its node.
on_node() {
    local pod
    pod=$(node_pod "$1")
    shift
    kube --namespace "$RELEASE_NAMESPACE" exec "$pod" -c splitfs -- "$@"
}

# pod_node POD
pod_node() {
    k get pod "$1" -o jsonpath='{.spec.nodeName}'
}

# volume_root NODE CLAIM: where the volume is staged on its node.
volume_root() {
    local pv handle file
    pv=$(k get pvc "$2" -o jsonpath='{.spec.volumeName}')
    handle=$(kube get pv "$pv" -o jsonpath='{.spec.csi.volumeHandle}')
    file=$(on_node "$1" grep -lsr --include=vol_data.json "\"$handle\"" /var/lib/kubelet/plugins/kubernetes.io/csi/csi.splitfs.io) ||
        fail "claim $2: volume $handle is not staged on node $1"
    printf '%s/globalmount\n' "${file%/vol_data.json}"
}

# snapshot_handle NAME: of the VolumeSnapshot, as its node calls it.
snapshot_handle() {
    kube get volumesnapshotcontent "$(k get volumesnapshot "$1" -o jsonpath='{.status.boundVolumeSnapshotContentName}')" -o jsonpath='{.status.snapshotHandle}'
}

# snapshots_gone NODE HANDLE...: the node keeps nothing of these.
snapshots_gone() {
    local left
    left=$(on_node "$1" ls /var/lib/splitfs/volumes/snapshots) || return 1
    shift
    ! grep -F "$(printf '%s\n' "$@")" <<<"$left"
}

# volume_status NODE ROOT: the JSON of `splitfs status`.
volume_status() {
    on_node "$1" splitfs status --json "$2"
}

# counter JSON NAME: over all processes, those that are gone included.
counter() {
    jq --exit-status --raw-output --arg name "$2" '.totals[$name]' <<<"$1" || fail "splitfs status shows no counter '$2'"
}

# served_pid JSON COMMAND-NAME: the living process of that name that the library serves on this volume, as its node numbers it.
served_pid() {
    jq --exit-status --raw-output --arg comm "$2" '[.processes[] | select(.alive and .comm == $comm)][0].pid // empty' <<<"$1"
}

# process_counters JSON PID
process_counters() {
    jq --exit-status --compact-output --argjson pid "$2" '.processes[] | select(.pid == $pid) | .counters' <<<"$1"
}

# kill_container NODE PID: SIGKILL for the first process of the PID namespace that PID lives in. The kernel then kills the
# others of the container, as it would after an out-of-memory kill.
kill_container() {
    # shellcheck disable=SC2016  # expanded by the shell on the node, which has few programs besides: last is the last number of a line
    on_node "$1" sh -c '
        last() { line=$(grep "^$1:" /proc/"$pid"/status) && number=${line##*[!0-9]}; }
        pid=$1
        while last NSpid && [ "$number" != 1 ]; do
            last PPid
            pid=$number
            [ "${pid:-0}" -gt 1 ] || { echo "no container around process $1" >&2; exit 1; }
        done
        kill -KILL "$pid"' kill-container "$2"
}

# events_of KIND NAME: reasons and messages, one a line.
events_of() {
    k get events --field-selector "involvedObject.kind=$1,involvedObject.name=$2" \
        -o jsonpath='{range .items[*]}{.type} {.reason}: {.message}{"\n"}{end}'
}

has_event() {
    local events
    events=$(events_of "$1" "$2")
    printf '%s\n' "$events"
    grep -qE -- "$3" <<<"$events"
}

# wait_event KIND NAME REGULAR-EXPRESSION [SECONDS]: an event that says so; it is shown.
wait_event() {
    wait_until "${4:-60}" "event /$3/ on $1 $2" has_event "$1" "$2" "$3" || fail "$1 $2 has no event that says /$3/"
    say "event on $1 $2: $(events_of "$1" "$2" | grep -E -- "$3" | head -n 1 | cut -c 1-300)"
}

# diagnose: what somebody needs who finds a test failed. Shown as far as it goes: the failure itself is told already.
diagnose() {
    local pod
    printf '\n--- namespace %s\n' "$NAMESPACE"
    k get pods,pvc -o wide || true
    k get events --sort-by=.lastTimestamp | tail -n 25 | cut -c 1-400 || true
    for pod in $(k get pods -o name); do
        printf -- '--- %s\n' "$pod"
        k logs "$pod" --all-containers --ignore-errors --prefix --tail=15 | cut -c 1-300 || true
    done
    printf -- '--- driver\n'
    kube --namespace "$RELEASE_NAMESPACE" get pods -o wide || true
    kube --namespace "$RELEASE_NAMESPACE" logs -l "$NODE_LABELS" --container=splitfs --prefix --tail=200 | grep -vE 'GetCapacity|Feature gate' | tail -n 40 | cut -c 1-400 || true
}
