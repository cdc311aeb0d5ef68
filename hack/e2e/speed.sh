# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# One real workload with and without the library, in turns on the same volume: Redis with an append-only file that is synced at every write,
# under redis-benchmark. To be sourced after lib.sh.

SPEED_ROUNDS=4
SPEED_REQUESTS=10000

# redis_speed POD: runs in the container "redis" of a pod made by redis_pod. Prints a line "WITH WITHOUT", requests a second, for each round.
# Who begins changes from round to round. It is bounded: the rounds that ended within half a minute count.
redis_speed() {
    # shellcheck disable=SC2016  # expanded by the shell in the container
    in_pod "$1" redis bash -c '
        unset SPLITFS_GRANT # as it is without being asked
        once() { # once with|without: requests a second
            local dir=/data/speed preload=() pid rps
            # /etc/ld.so.preload brings the library in any case; without a configuration it serves nothing.
            [ "$1" = with ] || preload=(-u LD_PRELOAD SPLITFS_CONFIG=)
            rm -rf "$dir" && mkdir "$dir"
            env "${preload[@]}" redis-server --port 0 --unixsocket /tmp/speed.sock --dir "$dir" --appendonly yes \
                --appendfsync always --save "" --logfile "" >/dev/null &
            pid=$!
            until [ "$(redis-cli -s /tmp/speed.sock ping 2>/dev/null)" = PONG ]; do
                kill -0 "$pid" 2>/dev/null || { echo "redis-server $1 the library has ended" >&2; exit 1; }
                sleep 0.05
            done
            if grep -qzx SPLITFS_CONFIG= "/proc/$pid/environ"; then [ "$1" = without ]; else grep -q libsplit.so "/proc/$pid/maps"; fi ||
                { echo "the library is not where it should be: $1" >&2; exit 1; }
            # The load itself is the same program both times.
            rps=$(env -u LD_PRELOAD SPLITFS_CONFIG= redis-benchmark -s /tmp/speed.sock --csv -c 50 -n "$requests" -d 300 -t set |
                awk -F "\"" "/^\"SET/ { print \$4 }")
            redis-cli -s /tmp/speed.sock shutdown nosave >/dev/null 2>&1
            wait "$pid"
            rm -rf "$dir"
            [ -n "$rps" ] || { echo "redis-benchmark printed no result" >&2; exit 1; }
            printf "%s\n" "$rps"
        }
        rounds=$1 requests=$2
        for ((i = 0; i < rounds && SECONDS < 30; i++)); do
            if [ $((i % 2)) = 0 ]; then
                with=$(once with) && without=$(once without)
            else
                without=$(once without) && with=$(once with)
            fi || exit 1
            echo "$with $without"
        done' redis-speed "$SPEED_ROUNDS" "$SPEED_REQUESTS"
}

# speed_text: from those lines on standard input, what each did and the ratio within a round, with its spread.
speed_text() {
    awk '
        function sorted_middle(a, n,   i, j, t) {
            for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j - 1] > a[j]; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
            return n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2
        }
        NF == 2 && $2 > 0 { n++; with[n] = $1; without[n] = $2; ratio[n] = $1 / $2 }
        END {
            if (n == 0) exit 1
            middle = sorted_middle(ratio, n)
            printf "Redis, synced at every write: %.0f requests/s with the library, %.0f without\n", sorted_middle(with, n), sorted_middle(without, n)
            printf "ratio %.2f (%.2f to %.2f in %d rounds)\n", middle, ratio[1], ratio[n], n
        }'
}
