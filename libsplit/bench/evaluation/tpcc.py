# SPDX-License-Identifier: Apache-2.0
"""Rows of TPC-C. The database of PostgreSQL is loaded once for each file system, beside it, and copied for each run."""

from .row import Figure, Program

# As the user postgres, with the program's own directory for its socket.
SERVER = """serve() {
    setpriv --reuid postgres --regid postgres --clear-groups "$PG/postgres" -D "$1/db" -k "$1" -c listen_addresses= \\
        >/dev/null 2>&1 &
    until "$PG/pg_isready" -q -h "$1"; do sleep 0.05; done
}
tpc() {
    "$BENCH/go-tpc" tpcc "$1" --driver postgres --host '""' --port 5432 --user postgres --password none --db postgres \\
        --conn-params "sslmode=disable&host=$2" --warehouses 1 --threads 1 --silence "$3" "$4"
}
"""

# Whoever stops the server has its status after that of the work.
BEFORE = (
    SERVER
    + """made="$INPUT/tpcc"
if [ ! -d "$made" ]; then
    chmod 755 "$INPUT"
    mkdir -p "$made.new"
    chown postgres "$made.new"
    setpriv --reuid postgres --regid postgres --clear-groups "$PG/initdb" -D "$made.new/db" -A trust >/dev/null
    printf 'fsync = off\\n' >"$made.new/db/postgresql.auto.conf"
    serve "$made.new"
    status=0
    tpc prepare "$made.new" --no-check=true --dropdata=true || status=$?
    kill -INT $!
    wait
    [ "$status" = 0 ]
    printf '' >"$made.new/db/postgresql.auto.conf"
    mv "$made.new" "$made"
fi
chown postgres .
cp -a "$made/db" db"""
)

RUN = (
    SERVER
    + """serve "$PWD"
status=0
tpc run "$PWD" --count $N || status=$?
kill -INT $!
wait
exit $status"""
)

ROWS = [
    Program(
        "tpcc-postgresql",
        "further",
        "go-tpc's TPC-C on PostgreSQL, one warehouse, one client without think times",
        500,
        100,
        RUN,
        before=BEFORE,
        needs=("pg_ctlcluster", "setpriv"),
        built=("go-tpc",),
        pattern=r"tpmC: (?P<value>[\d.]+)",
        figure=Figure("New-Order transactions/min", more=True),
    ),
    Program(
        "tpcc-sqlite",
        "SplitFS, Figure 6 (TPC-C on SQLite)",
        "a load in the manner of TPC-C on SQLite with a write-ahead log, one warehouse with a tenth of the customers "
        "and items, each transaction forced",
        2000,
        200,
        '"$OURS/tpcc" run t.db 10 $N',
        before='"$OURS/tpcc" make t.db 10 $N',
        ours=("tpcc",),
        pattern=r"(?P<value>[\d.]+) transactions/s",
        figure=Figure("transactions/s", more=True),
    ),
]
