# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What runs in the pods of a cycle besides the writer of records: PostgreSQL with connections that come and go, and who attacks the agent.
# To be sourced before cycle.sh. Each script ends as the ones there do: what it says is in its termination message.

# Acknowledged are the transactions that pgbench has logged: each client notes one when its COMMIT has returned. PostgreSQL and pgbench may
# die as often as they like; the pod's end is a SIGKILL of all of it.
# shellcheck disable=SC2016  # expanded in the pod
POSTGRES='
    as() { setpriv --reuid=postgres --regid=postgres --init-groups "$@"; }
    bin=$(echo /usr/lib/postgresql/*/bin)
    sql() { psql -h 127.0.0.1 -U postgres -qtAc "$1" 2>>/acknowledged/errors; }
    # It is started again as often as it dies. The lock file of a start before this container is of nobody.
    serve() {
        local tries
        for ((tries = 0; tries < 900; tries++)); do
            if [ -z "$server" ] || ! kill -0 "$server" 2>/dev/null; then
                [ -n "$server" ] || rm -f /data/pg/postmaster.pid
                as "$bin/postgres" -D /data/pg -c unix_socket_directories=/tmp -c listen_addresses=127.0.0.1 -c shared_buffers=16MB \
                    -c max_wal_size=64MB >>/acknowledged/postgres.log 2>&1 &
                server=$!
            fi
            [ "$(sql "SELECT 1")" != 1 ] || return 0
            sleep 0.2
        done
        say "FAILED: PostgreSQL does not start: $(tail -n 3 /acknowledged/postgres.log)"
        exit 1
    }
    server=
    '
# shellcheck disable=SC2016
POSTGRES_WRITER=$POSTGRES'
    transactions() { cat /acknowledged/transactions* 2>/dev/null | wc -l; }
    echo >>/acknowledged/starts
    if [ ! -e /data/pg ]; then
        rm -rf /data/new
        mkdir /data/new && chown postgres /data/new && chmod 700 /data/new
        as "$bin/initdb" --pgdata=/data/new --auth=trust --no-sync >/acknowledged/initdb 2>&1 || { say "FAILED: initdb: $(tail -n 2 /acknowledged/initdb)"; exit 1; }
        mv /data/new /data/pg
    fi
    echo "INSERT INTO rows DEFAULT VALUES" >/tmp/insert
    for ((round = 0; $(transactions) < $1; round++)); do
        serve
        sql "CREATE TABLE IF NOT EXISTS rows (n serial)" || continue
        timeout -s KILL 60 "$bin/pgbench" -h 127.0.0.1 -U postgres --no-vacuum --connect --client=2 --transactions=25 --file=/tmp/insert \
            --log --log-prefix="/acknowledged/transactions.$EPOCHREALTIME" postgres >/dev/null 2>>/acknowledged/errors || sleep 0.5
    done
    transactions >/data/acknowledged
    say "acknowledged $1 restarts $(($(wc -l </acknowledged/starts) - 1)) rounds $round"'
# shellcheck disable=SC2016
POSTGRES_VERIFIER=$POSTGRES'
    serve
    rows=$(sql "SELECT count(DISTINCT n) FROM rows")
    if [ "${rows:-0}" -ge "$(cat /data/acknowledged)" ]; then say "found $1"; else say "LOST: $(cat /data/acknowledged) transactions were acknowledged, $rows rows are there"; fi'

# Silence, garbage and half a message on as many connections as it gets, and shells that write two bytes each: to the volume of the writer.
# shellcheck disable=SC2016
ATTACKER='
    perl -MSocket -e '\''
        my @kept;
        srand;
        for (;;) {
            for my $path (glob "/opt/splitfs/agents/*.sock") {
                for (1 .. 50) {
                    socket(my $s, AF_UNIX, SOCK_SEQPACKET, 0) or last;
                    connect($s, pack_sockaddr_un($path)) or last;
                    my $way = int rand 3;
                    send($s, join("", map { chr int rand 256 } 1 .. 64), MSG_DONTWAIT) if $way == 1;
                    send($s, pack("SSlQQQQ", 1, 1 + int rand 20, 0, 2, 0, 0, 2), MSG_DONTWAIT) if $way == 2;
                    push @kept, $s;
                }
            }
            splice @kept, 0, 200 if @kept > 600;
            select undef, undef, undef, 0.2;
        }'\'' &
    for ((i = 0; ; i = (i + 1) % 20)); do
        (echo x >"/data/attack.$i") 2>/dev/null
        sleep 0.05
    done'
