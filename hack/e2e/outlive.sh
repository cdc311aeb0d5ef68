# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Programs that make processes and connections all the time on one strict volume: PostgreSQL under pgbench with a connection for each
# transaction, git, and a shell. Each notes what was acknowledged, and how long every step took, on a volume that is not ours. Beside them another
# git works on no volume of ours: what holds that one up is the machine.
# To be sourced after lib.sh.

# A line of /notes/NAME is "NUMBER MICROSECONDS" of a step.
# shellcheck disable=SC2016  # expanded in the container
FORKER_STEPS='
    # timed NAME COMMAND...: steps 1, 2, ... until one fails or /notes/stop is there.
    timed() {
        local name=$1 i began
        shift
        for ((i = 1; ; i++)); do
            [ ! -e /notes/stop ] || { touch /notes/$name.stopped; exec sleep infinity; }
            began=${EPOCHREALTIME/./}
            "$@" "$i" 2>>/notes/$name.err || { echo "step $i: status $?" >>/notes/$name.failed; exec sleep infinity; }
            echo "$i $((${EPOCHREALTIME/./} - began))" >>/notes/$name
            [ -z "${pause:-}" ] || sleep "$pause"
        done
    }'
# shellcheck disable=SC2016
FORKER_POSTGRES='
    mkdir -p /data/pg && chown postgres /data/pg && chmod 700 /data/pg
    as() { setpriv --reuid=postgres --regid=postgres --init-groups "$@"; }
    bin=$(echo /usr/lib/postgresql/*/bin)
    [ -e /data/pg/PG_VERSION ] || as "$bin/initdb" --pgdata=/data/pg --auth=trust --no-sync >/dev/null
    exec setpriv --reuid=postgres --regid=postgres --init-groups "$bin/postgres" -D /data/pg -c unix_socket_directories=/tmp -c listen_addresses=127.0.0.1 -c shared_buffers=16MB'
# pgbench notes each transaction itself: client, number, microseconds.
# shellcheck disable=SC2016
FORKER_BENCH='
    until psql -h 127.0.0.1 -U postgres -qc "CREATE TABLE IF NOT EXISTS rows (n serial)" 2>/dev/null; do sleep 0.2; done
    bench=$(echo /usr/lib/postgresql/*/bin/pgbench)
    echo "INSERT INTO rows DEFAULT VALUES" >/tmp/insert
    "$bench" -h 127.0.0.1 -U postgres --no-vacuum --connect --client=2 --time=100000 --file=/tmp/insert --log --log-prefix=/notes/transactions postgres >/notes/bench.out 2>/notes/bench.err ||
        echo "pgbench ended: $(tail -n 3 /notes/bench.err)" >>/notes/bench.failed
    exec sleep infinity'
# shellcheck disable=SC2016
FORKER_GIT='
    export HOME=/tmp GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
    mkdir -p "$at" && cd "$at" && git init -q . 2>/dev/null
    git config gc.auto 0
    commit() { echo "line $1" >>file && git add file && git commit -qm "step $1"; }
    timed "$as" commit'
# shellcheck disable=SC2016
FORKER_SHELL='
    mkdir -p /data/shell
    lines() { (echo "$1" >>/data/shell/own) && echo "$1" | tee -a /data/shell/tee >/dev/null && cat /data/shell/own | wc -l >/tmp/count; }
    timed shell lines'

# forkers_pod NAME CLAIM NODE
forkers_pod() {
    jq --null-input --arg name "$1" --arg claim "$2" --arg node "$3" --arg image "$APPS_IMAGE" --arg steps "$FORKER_STEPS" \
        --arg postgres "$FORKER_POSTGRES" --arg bench "$FORKER_BENCH" --arg git "$FORKER_GIT" --arg shell "$FORKER_SHELL" '
        def container(name; script; mounts): {name: name, image: $image, imagePullPolicy: "IfNotPresent", command: ["bash", "-c", ($steps + "\n" + script)], volumeMounts: mounts};
        def data: {name: "data", mountPath: "/data"};
        def notes: {name: "notes", mountPath: "/notes"};
        {apiVersion: "v1", kind: "Pod", metadata: {name: $name}, spec: {
            terminationGracePeriodSeconds: 0, nodeSelector: {"kubernetes.io/hostname": $node},
            volumes: [{name: "data", persistentVolumeClaim: {claimName: $claim}}, {name: "notes", emptyDir: {}}],
            containers: [
                container("postgres"; $postgres; [data]), container("bench"; $bench; [notes]),
                container("git"; "at=/data/git as=git" + $git; [data, notes]),
                container("control"; "at=/tmp/git as=control pause=0.1" + $git; [notes]), container("shell"; $shell; [data, notes])]}}' | k apply -f - >/dev/null
}

# forker_steps POD: how many steps each program has done, "bench git shell control".
forker_steps() {
    # shellcheck disable=SC2016
    in_pod "$1" bench bash -c 'n() { cat "$@" 2>/dev/null | wc -l; }; echo $(n /notes/transactions*) $(n /notes/git) $(n /notes/shell) $(n /notes/control)'
}

# forkers_failed POD: what any of them has complained of.
forkers_failed() {
    in_pod "$1" bench bash -c 'cat /notes/*.failed 2>/dev/null; grep -hv "^$" /notes/git.err /notes/shell.err 2>/dev/null | head -n 5' || true
}

# forkers_done POD STEPS: each program has done so many more than forker_steps of before, or one has failed.
forkers_done() {
    local -a before now
    local i
    read -ra before <<<"$2"
    [ -z "$(forkers_failed "$1")" ] || return 0
    read -ra now <<<"$(forker_steps "$1")"
    for i in "${!before[@]}"; do
        [ "${now[i]:-0}" -ge $((before[i] + $3)) ] || return 1
    done
}

# slowest_step POD STEPS: the slowest step of each program since those steps, in milliseconds.
slowest_step() {
    # shellcheck disable=SC2016,SC2086  # expanded in the container; four numbers
    in_pod "$1" bench bash -c '
        since() { awk -v from="$1" "NR > from && \$2 > most { most = \$2 } END { printf \"%d\", most / 1000 }" "$2"; }
        # Of pgbench the log of each thread is in its own order: the time of a transaction is its third column.
        bench=$(cat /notes/transactions* | sort -k 5,5n -k 6,6n | awk -v from="$1" "NR > from && \$3 > most { most = \$3 } END { printf \"%d\", most / 1000 }")
        echo "bench $bench git $(since "$2" /notes/git) shell $(since "$3" /notes/shell) control $(since "$4" /notes/control)"' slowest $2
}
