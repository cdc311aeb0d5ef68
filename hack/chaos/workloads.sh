# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What runs in the pods of a cycle besides the writer of records: PostgreSQL with connections that come and go, Redis, git, and who attacks
# the agent.
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

# Acknowledged are the writes that Redis, which forces each of them, has answered. It rewrites its file in a child now and then.
# shellcheck disable=SC2016
REDIS='
    serve() {
        local tries
        for ((tries = 0; tries < 900; tries++)); do
            if [ -z "$server" ] || ! kill -0 "$server" 2>/dev/null; then
                redis-server --dir /data --appendonly yes --appendfsync always --save "" >>/acknowledged/redis.log 2>&1 &
                server=$!
            fi
            [ "$(redis-cli ping 2>/dev/null)" != PONG ] || return 0
            sleep 0.2
        done
        say "FAILED: Redis does not start: $(tail -n 3 /acknowledged/redis.log)"
        exit 1
    }
    server=
    '
# shellcheck disable=SC2016
REDIS_WRITER=$REDIS'
    trap "" PIPE
    n=0
    if [ -s /acknowledged/list ]; then
        n=$(tail -n 1 /acknowledged/list)
        echo >>/acknowledged/starts
    fi
    while [ "$n" -lt "$1" ]; do
        serve
        exec 3<>/dev/tcp/127.0.0.1/6379 || continue
        while [ "$n" -lt "$1" ]; do
            printf "SET write:%d value-of-%d\r\n" $((n + 1)) $((n + 1)) >&3 && IFS= read -r -t 60 reply <&3 || break
            [[ $reply == +OK* ]] || { say "FAILED: Redis says $reply"; exit 1; }
            n=$((n + 1))
            echo "$n" >>/acknowledged/list
            [ $((n % 100)) != 0 ] || redis-cli bgrewriteaof >/dev/null 2>&1
            sleep 0.01
        done
        exec 3>&-
    done 2>>/acknowledged/errors
    say "acknowledged $1 restarts $(cat /acknowledged/starts 2>/dev/null | wc -l)"'
# shellcheck disable=SC2016
REDIS_VERIFIER=$REDIS'
    serve
    found=$(for ((i = 1; i <= $1; i++)); do echo "GET write:$i"; done | redis-cli | awk "\$0 == \"value-of-\" NR { n++ } END { print n + 0 }")
    if [ "$found" = "$1" ]; then say "found $1"; else say "LOST: $1 writes were acknowledged, $found are there"; fi'

# Acknowledged are the lines of commits that have returned, eight lines each. A commit that was killed is made again; its locks are of
# nobody then.
# shellcheck disable=SC2016
GIT='
    export HOME=/tmp GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
    git config --global --add safe.directory "*"
    lines() { git -C /data/git show HEAD:file 2>/dev/null | wc -l; }
    '
# shellcheck disable=SC2016
GIT_WRITER=$GIT'
    [ ! -e /acknowledged/begun ] || echo >>/acknowledged/starts
    touch /acknowledged/begun
    if [ ! -e /data/git ]; then
        rm -rf /data/new
        git init -q /data/new && git -C /data/new config gc.auto 0 && mv /data/new /data/git || { say "FAILED: git init"; exit 1; }
    fi
    cd /data/git
    while find .git -name "*.lock" -delete && [ "$(lines)" -lt "$1" ]; do
        n=$(lines) status=0
        acknowledged=$(tail -n 1 /acknowledged/list 2>/dev/null)
        if [ "$n" -lt "${acknowledged:-0}" ]; then
            say "LOST: ${acknowledged:-0} lines were committed, $n are there"
            exit 0
        fi
        [ "$n" = 0 ] || git reset -q --hard 2>/acknowledged/error || status=$?
        to=$((n + 8 < $1 ? n + 8 : $1))
        [ "$status" != 0 ] || { records "$to" | tail -n +$((n + 1)) >>file && git add file && git commit -qm "lines to $to" 2>/acknowledged/error; } || status=$?
        case $status in
        0) echo "$to" >>/acknowledged/list ;;
        137) ;;
        *)
            say "FAILED: commit of lines to $to: status $status, $(tail -n 1 /acknowledged/error)"
            exit 1
            ;;
        esac
    done
    say "acknowledged $1 restarts $(cat /acknowledged/starts 2>/dev/null | wc -l)"'
# shellcheck disable=SC2016
GIT_VERIFIER=$GIT'
    if ! git -C /data/git fsck --full >/tmp/why 2>&1; then
        say "LOST: git fsck: $(tail -n 1 /tmp/why)"
    elif records "$1" | cmp - <(git -C /data/git show HEAD:file) 2>/tmp/why; then
        say "found $1"
    else
        say "LOST: $(cat /tmp/why), $(lines) lines"
    fi'

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
