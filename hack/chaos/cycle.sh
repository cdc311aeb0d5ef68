# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The life of one volume: claim, writer, verifier, end. To be sourced after e2e/lib.sh, with LOGS set.

# What runs in the pods. A record has 257 bytes that follow from its number. The writer keeps its file open, so that the library has
# staged data when somebody is killed, and writes the number of each record to another volume once the write has returned. Every fourth
# writes each record from a process of its own, as forking servers do: such a process has to find an agent.
# shellcheck disable=SC2016  # expanded in the pod
RECORDS='record() { printf -v line "%08d %0247d" "$1" "$(($1 * 2654435761 % 4294967296))"; }
    records() { local i; for ((i = 1; i <= $1; i++)); do record "$i"; printf "%s\n" "$line"; done; }
    say() { printf "%s" "$*" >/dev/termination-log; }'
# shellcheck disable=SC2016
WRITER='
    n=0
    if [ -s /acknowledged/list ]; then
        # Killed and started again: what was acknowledged must be there, and at most the record that was under way besides.
        n=$(tail -n 1 /acknowledged/list)
        size=$(stat -c %s /data/records)
        have=$((size / 257))
        if [ "$have" -lt "$n" ] || [ "$have" -gt $((n + 1)) ] || [ $((size % 257)) != 0 ] || ! records "$have" | cmp - /data/records; then
            cp /data/records /acknowledged/lost
            say "LOST: $n records were acknowledged, the file has $size bytes, $have records"
            exit 0
        fi
        n=$have
        echo "$n" >>/acknowledged/list
        echo "$n" >>/acknowledged/starts
    fi
    exec 3>>/data/records 4>>/acknowledged/list
    for ((i = n + 1; i <= $1; i++)); do
        record "$i"
        if [ $((${0##*-w} % 4)) = 0 ]; then (printf "%s\n" "$line" >>/data/records); else printf "%s\n" "$line" >&3; fi || { say "FAILED: write of record $i"; exit 1; }
        echo "$i" >&4
        sleep 0.01
    done
    say "acknowledged $1 restarts $(cat /acknowledged/starts 2>/dev/null | wc -l)"'
# shellcheck disable=SC2016
VERIFIER='
    if records "$1" | cmp - /data/records 2>/tmp/why; then say "found $1"; else say "LOST: $(cat /tmp/why), $(stat -c %s /data/records) bytes"; fi'

# again COMMAND...: until it succeeds: the API server may be away, or the injector.
again() {
    wait_until 240 "$*" "$@"
}

# chaos_pod NAME CLAIM RECORDS SCRIPT [ANNOTATION]
chaos_pod() {
    jq --null-input --arg name "$1" --arg claim "$2" --arg records "$3" --arg script "$RECORDS $4" --arg image "$APPS_IMAGE" --arg inject "${5:-true}" '{
        apiVersion: "v1", kind: "Pod", metadata: {name: $name, annotations: (if $inject == "false" then {"splitfs.io/inject": "false"} else {} end)},
        spec: {
            restartPolicy: "OnFailure", terminationGracePeriodSeconds: 1,
            volumes: [{name: "data", persistentVolumeClaim: {claimName: $claim}}, {name: "acknowledged", emptyDir: {}}],
            containers: [{
                name: "main", image: $image, imagePullPolicy: "IfNotPresent", command: ["bash", "-c", $script, "chaos-\($name)", $records],
                volumeMounts: [{name: "data", mountPath: "/data"}, {name: "acknowledged", mountPath: "/acknowledged"}]
            }]
        }}' | k apply -f - >/dev/null
}

# ended POD: it has done what it had to; says how.
ended() {
    local state
    state=$(k get pod "$1" -o jsonpath='{.status.phase} {.status.containerStatuses[0].state.terminated.message}')
    printf '%s\n' "$state"
    [[ $state == Succeeded\ * ]]
}

pod_gone() {
    local name
    name=$(k get pod "$1" --ignore-not-found -o name) && [ -z "$name" ]
}

# remove_pod POD: gone, also from its node, before the claim goes.
remove_pod() {
    again k delete pod "$1" --ignore-not-found --wait=false
    wait_until "$limit" "end of pod $1" pod_gone "$1"
}

volume_of() {
    k get pvc "$1" -o jsonpath='{.spec.volumeName}' | grep .
}

pv_gone() {
    local name
    name=$(kube get pv "$1" --ignore-not-found -o name) && [ -z "$name" ]
}

# cycle NUMBER RECORDS
cycle() {
    local name=c$1 records=$2 modes=(strict sync posix) mode inject=true message pv size=64Mi writer=$WRITER verifier=$VERIFIER
    mode=${modes[$1 % 3]}
    # Every fifth has PostgreSQL, Redis and git, all modes in turn.
    case $(($1 % 5)) in
    2) size=384Mi writer=$POSTGRES_WRITER verifier=$POSTGRES_VERIFIER ;;
    3) writer=$REDIS_WRITER verifier=$REDIS_VERIFIER ;;
    4) writer=$GIT_WRITER verifier=$GIT_VERIFIER ;;
    esac
    # Every other verifier reads through the kernel alone.
    [ $(($1 % 2)) = 0 ] || inject=false
    again claim "$name" "$size" "splitfs-$mode"
    again chaos_pod "w$1" "$name" "$records" "$writer"
    # Every third writer has somebody beside it who attacks the agent of its volume.
    [ $(($1 % 3)) != 1 ] || again chaos_pod "a$1" "$name" "$records" "$ATTACKER"
    wait_until "$limit" "the end of writer w$1" ended "w$1"
    message=$(again_get ended "w$1")
    printf '%s: %s\n' "$mode" "$message"
    [[ $message == *" acknowledged $records restarts "* ]] || fail "writer: $message"
    printf '%s\n' "${message#Succeeded }" >"$LOGS/$name.written"
    pv=$(again_get volume_of "$name")
    again_get kube get pv "$pv" -o jsonpath='{.spec.csi.volumeHandle}{"\n"}' >>"$LOGS/handles"
    remove_pod "w$1"
    [ $(($1 % 3)) != 1 ] || remove_pod "a$1"
    again chaos_pod "v$1" "$name" "$records" "$verifier" "$inject"
    wait_until "$limit" "the end of verifier v$1" ended "v$1"
    message=$(again_get ended "v$1")
    printf 'verifier, injected %s: %s\n' "$inject" "$message"
    [ "$message" = "Succeeded found $records" ] || fail "verifier: $message"
    printf '%s\n' "${message#Succeeded }" >"$LOGS/$name.verified"
    remove_pod "v$1"
    again k delete pvc "$name" --ignore-not-found --wait=false
    wait_until "$limit" "end of volume $pv" pv_gone "$pv"
}

# again_get COMMAND...: its output, as soon as it succeeds.
again_get() {
    local output
    for _ in $(seq 240); do
        if output=$("$@" 2>/dev/null); then
            printf '%s\n' "$output"
            return
        fi
        sleep 1
    done
    "$@"
}

# run_cycle NUMBER RECORDS LIMIT: in the background.
run_cycle() {
    local started=$SECONDS limit=$3 result=PASS status=0
    trap - EXIT
    # A subshell of its own: in a condition "set -e" would not count.
    set +e
    (
        set -e
        cycle "$1" "$2"
    ) >"$LOGS/cycle-$1.log" 2>&1
    status=$?
    set -e
    [ "$status" = 0 ] || result=FAIL
    if [ $result = FAIL ]; then
        {
            k describe pod "w$1" "v$1" "a$1"
            k get events | grep -E "(/| )(w|v|c|a)$1 "
        } >>"$LOGS/cycle-$1.log" 2>&1 || true
        printf 'FAIL cycle %d after %d s: %s\n' "$1" $((SECONDS - started)) "$(grep -m 1 -E '^FAILED|not within' "$LOGS/cycle-$1.log" || echo 'see its log')" >"$LOGS/cycle-$1.result"
    else
        printf 'PASS cycle %d in %d s\n' "$1" $((SECONDS - started)) >"$LOGS/cycle-$1.result"
    fi
    progress "$(cat "$LOGS/cycle-$1.result")"
}

# totals WORD: the sum of the numbers behind this word in what the pods said.
totals() {
    cat "$LOGS"/c*.written "$LOGS"/c*.verified 2>/dev/null | awk -v word="$1" '{ for (i = 1; i < NF; i++) if ($i == word) sum += $(i + 1) } END { print sum + 0 }'
}

# handles_are_gone: of no volume of any cycle there is a loop device or a mount, on this machine or in any node.
handles_are_gone() {
    local handle node loops mounts
    loops=$(losetup --list --noheadings --output NAME,BACK-FILE)
    mounts=$(for node in $(kube get nodes -o jsonpath='{.items[*].metadata.name}'); do "$HACK_DIR/cluster" exec "$node" cat /proc/1/mountinfo; done)
    while read -r handle; do
        ! grep -F "$handle" <<<"$loops" || fail "volume $handle is gone, its loop device is not"
        ! grep -F "$handle" <<<"$mounts" || fail "volume $handle is gone, and something of it is mounted"
    done <"$LOGS/handles"
    say "$(wc -l <"$LOGS/handles") volumes: no loop device, no mount"
}
