# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# A Redis server on one of our volumes and a client beside it that writes down every write Redis has acknowledged.
# Used by the end-to-end tests and the quickstart. To be sourced after lib.sh.

# redis_pod NAME CLAIM [APPENDFSYNC [SOURCE]]: SOURCE is another volume source than the claim. The client is in a container of its own, on
# no volume of ours: what it has written down outlives the server. It stops at the first write that is not acknowledged.
redis_pod() {
    local source=${4:-"persistentVolumeClaim: {claimName: $2}"}
    k apply -f - <<EOF >/dev/null
apiVersion: v1
kind: Pod
metadata: {name: $1, labels: {app: $1}}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {runAsUser: 1000, runAsGroup: 1000, fsGroup: 1000}
  volumes:
  - {name: data, $source}
  - {name: acknowledged, emptyDir: {}}
  containers:
  - name: redis
    image: $APPS_IMAGE
    imagePullPolicy: IfNotPresent
    env: [{name: SPLITFS_GRANT, value: first}] # a grant with the first call: what is counted is small
    # A torn end of the file is an error here: no acknowledged write may be repaired away.
    command: [redis-server, --dir, /data, --appendonly, "yes", --appendfsync, "${3:-always}", --aof-load-truncated, "no", --save, ""]
    volumeMounts: [{name: data, mountPath: /data}]
  - name: client
    image: $APPS_IMAGE
    imagePullPolicy: IfNotPresent
    volumeMounts: [{name: acknowledged, mountPath: /acknowledged}]
    command:
    - bash
    - -c
    - |
      trap '' PIPE
      until [ "\$(redis-cli ping 2>/dev/null)" = PONG ]; do sleep 0.1; done
      exec 3<>/dev/tcp/127.0.0.1/6379
      for ((i = 1; ; i++)); do
        printf 'SET write:%d value-of-%d\r\n' \$i \$i >&3 || break
        IFS= read -r reply <&3 && [ "\$reply" = \$'+OK\r' ] || break
        echo \$i >>/acknowledged/writes
      done
      echo "stopped at write \$i, which was not acknowledged"
      touch /acknowledged/stopped
      exec sleep infinity
EOF
}

acknowledged_writes() {
    in_pod "$1" client tail -n 1 /acknowledged/writes
}

acknowledged_at_least() {
    local n
    n=$(acknowledged_writes "$1") && [ "$n" -ge "$2" ]
}

# found_writes POD N: how many of the writes 1..N have the value that was acknowledged.
found_writes() {
    # shellcheck disable=SC2016  # expanded by the shell in the container
    in_pod "$1" client bash -c '
        seq 1 "$1" | sed "s/^/write:/" | xargs -n 1000 echo MGET | redis-cli >/tmp/found
        seq 1 "$1" | sed "s/^/value-of-/" >/tmp/wanted
        paste -d " " /tmp/wanted /tmp/found | awk "\$1 == \$2 { n++ } END { print n + 0 }"' found-writes "$2"
}
