# SPDX-License-Identifier: Apache-2.0
"""Rows of programs from packages. Each script leaves nothing behind that runs."""

from .row import Figure, Program

FASTER = Figure("operations/s", more=True)
MICROS = Figure("us/operation")

REDIS_NEEDS = ("redis-server", "redis-benchmark", "redis-cli")
REDIS_PATTERN = r"SET: (?P<value>[\d.]+) requests per second"
REDIS = """redis-server --port 0 --unixsocket "$PWD/s" --dir "$PWD" --appendonly yes --appendfsync {fsync} --save '' \\
    --logfile /dev/null &
until [ -S s ]; do sleep 0.02; done
redis-benchmark -s s -q -n $N -d 300 {more} -t set
redis-cli -s s shutdown
wait"""

SPEEDTEST = '"$BENCH/speedtest1" --size $N --journal {journal} s.db'
SPEEDTEST_PATTERN = r"TOTAL\.+ +(?P<value>[\d.]+)s"

LEVELDB = '"$BENCH/leveldb_bench" --db="$PWD/db" --num=$N --max_file_size=67108864 --benchmarks={which} 2>/dev/null'
ROCKSDB = """db_bench --db="$PWD/db" --num=$N --compression_type=none {more} \\
    --benchmarks=fillrandom,readrandom,updaterandom 2>/dev/null"""
DB_BENCH_PATTERN = r"(?m)^(?P<key>\w+) *: +(?P<value>[\d.]+) micros/op"

YCSB = """y() {
    "$BENCH/go-ycsb" $1 sqlite -P "$BENCH/workloads/workload$2" -p sqlite.db="$PWD/y.db" -p sqlite.journalmode=WAL \\
        -p recordcount=$N -p operationcount=$3 -p threadcount=1 |
        sed -n "s/^TOTAL .*OPS: \\([0-9.]*\\).*/$1 $2 = \\1/p" | tail -n 1
}
y load a $N; for w in a b c f d; do y run $w $N; done
rm -f y.db*
y load e $N; y run e $((N / 10))"""

POSTGRES = """export HOME="$PWD"; cat >{name}.sh <<'END'
{first}
"$PG/postgres" -D db -k "$PWD" -c listen_addresses= 2>/dev/null &
until "$PG/pg_isready" -q -h "$PWD"; do sleep 0.05; done
"$PG/pgbench" -h "$PWD" {options} postgres
kill -INT $!; wait
END
exec setpriv --reuid postgres --regid postgres --clear-groups sh {name}.sh"""
PGBENCH = POSTGRES.format(name="run", first="", options="-n -t $N")
PGBENCH_BEFORE = "chown postgres .\n" + POSTGRES.format(
    name="init", first='"$PG/initdb" -D db -A trust >/dev/null', options="-q -i -s 2"
)

# Fields 8 and 49 of fio's terse output are the operations per second that were read and written.
FIO = """f() {
    fio --name=f --filename=file --rw=$1 --bs=$2 --fsync=$3 --size=${N}m --io_size=$4 --ioengine=psync \\
        --thread --fallocate=none --end_fsync=1 --minimal | awk -F';' -v n="$5" '{ print n " = " $8 + $49 }'
}
f write 4k 0 ${N}m "write 4k"; f write 64k 0 ${N}m "write 64k"; f randwrite 4k 0 ${N}m "randwrite 4k"
f write 4k 1 $((N / 8))m "write 4k fsync"; f randwrite 4k 1 $((N / 8))m "randwrite 4k fsync"
f read 4k 0 ${N}m "read 4k"; f read 64k 0 ${N}m "read 64k"; f randread 4k 0 ${N}m "randread 4k\""""

GIT = """git init -q .
git add tree
git -c user.name=n -c user.email=e@example.org -c gc.auto=0 commit -qm all"""

LMDB_BEFORE = """{ printf 'VERSION=3\\nformat=print\\ntype=btree\\nmapsize=536870912\\nHEADER=END\\n'
awk -v n=$N 'BEGIN { for (i = 0; i < n; i++) printf " %016d\\n %0100d\\n", (i * 7919) % n, i; print "DATA=END" }'; } >in
mkdir db"""

KEYED = r"(?m)^(?P<key>[\w ]+) = (?P<value>[\d.]+)"
FIGURE_6 = "SplitFS, Figure 6"

ROWS = [
    Program(
        "leveldb",
        f"{FIGURE_6} (LevelDB, by its own db_bench instead of YCSB)",
        "LevelDB's db_bench, sstables of 64 MB as in the paper",
        100000,
        20000,
        LEVELDB.format(which="fillseq,fillrandom,overwrite,readrandom,readseq"),
        built=("leveldb_bench",),
        pattern=DB_BENCH_PATTERN,
        figure=MICROS,
    ),
    Program(
        "leveldb-sync",
        "further",
        "LevelDB's db_bench fillsync: each write forced; a thousandth of the number",
        300000,
        100000,
        LEVELDB.format(which="fillsync"),
        built=("leveldb_bench",),
        pattern=DB_BENCH_PATTERN,
        figure=MICROS,
    ),
    Program(
        "redis-everysec",
        f"{FIGURE_6} (Redis)",
        "redis-benchmark SET, AOF forced once a second; the paper sets 1M pairs",
        100000,
        10000,
        REDIS.format(fsync="everysec", more=""),
        needs=REDIS_NEEDS,
        pattern=REDIS_PATTERN,
        figure=FASTER,
    ),
    Program(
        "redis-always",
        "further",
        "the same, AOF forced before each answer, one client",
        10000,
        1000,
        REDIS.format(fsync="always", more="-c 1"),
        needs=REDIS_NEEDS,
        pattern=REDIS_PATTERN,
        figure=FASTER,
    ),
    Program(
        "redis-pipelined",
        "further",
        "AOF forced before each answer, 50 clients, 16 commands at a time",
        200000,
        20000,
        REDIS.format(fsync="always", more="-P 16"),
        needs=REDIS_NEEDS,
        pattern=REDIS_PATTERN,
        figure=FASTER,
    ),
    Program(
        "speedtest1-wal",
        "further",
        "SQLite's speedtest1 with a write-ahead log, synchronous=full",
        10,
        3,
        SPEEDTEST.format(journal="wal"),
        built=("speedtest1",),
        pattern=SPEEDTEST_PATTERN,
        figure=Figure("s"),
    ),
    Program(
        "speedtest1-rollback",
        "further",
        "the same with a rollback journal",
        10,
        3,
        SPEEDTEST.format(journal="delete"),
        built=("speedtest1",),
        pattern=SPEEDTEST_PATTERN,
        figure=Figure("s"),
    ),
    Program(
        "ycsb-sqlite",
        f"{FIGURE_6}; ctFS, Figure 12 (YCSB, on SQLite instead of LevelDB)",
        "go-ycsb on SQLite with a write-ahead log: Load A, Run A, B, C, F, D, Load E, Run E",
        3000,
        500,
        YCSB,
        built=("go-ycsb", "workloads"),
        pattern=KEYED,
        figure=FASTER,
    ),
    Program(
        "git",
        f"{FIGURE_6} (git)",
        "git add and git commit of a tree of small files",
        0,
        0,
        GIT,
        before='cp -r "$INPUT/tree" .',
        needs=("git",),
    ),
    Program(
        "tar",
        f"{FIGURE_6} (tar)",
        "a tree of small files packed and compressed",
        0,
        0,
        "tar czf tree.tgz tree",
        before='cp -r "$INPUT/tree" .',
        needs=("tar", "gzip"),
    ),
    Program("untar", "further", "the same tree unpacked", 0, 0, 'tar xf "$INPUT/tree.tar"', needs=("tar",)),
    Program(
        "rsync",
        f"{FIGURE_6} (rsync)",
        "a data set copied within the volume: the tree, and 30 files of 1 MiB",
        0,
        0,
        "rsync -a from/ to",
        before='mkdir from; cp -r "$INPUT/tree" "$INPUT/data" from',
        needs=("rsync",),
    ),
    Program(
        "rocksdb-wal",
        "ctFS, Figure 13",
        "RocksDB's db_bench: random fill, read, update, with its write-ahead log",
        50000,
        10000,
        ROCKSDB.format(more=""),
        needs=("db_bench",),
        pattern=DB_BENCH_PATTERN,
        figure=MICROS,
    ),
    Program(
        "rocksdb-nowal",
        "ctFS, Figure 13",
        "the same without the log",
        50000,
        10000,
        ROCKSDB.format(more="--disable_wal=1"),
        needs=("db_bench",),
        pattern=DB_BENCH_PATTERN,
        figure=MICROS,
    ),
    Program(
        "pgbench",
        "further",
        "PostgreSQL, pgbench (TPC-B-like), one client, scale 2",
        1000,
        100,
        PGBENCH,
        before=PGBENCH_BEFORE,
        needs=("pgbench", "setpriv"),
        pattern=r"tps = (?P<value>[\d.]+)",
        figure=Figure("transactions/s", more=True),
    ),
    Program(
        "fio",
        "further",
        "fio: sequential and random, 4 and 64 KiB; with an fsync each an eighth of the bytes",
        16,
        8,
        FIO,
        needs=("fio",),
        pattern=KEYED,
        figure=FASTER,
    ),
    Program(
        "lmdb",
        "further",
        "LMDB: mdb_load (a commit for each 100 records) in random order, and mdb_dump",
        20000,
        2000,
        "mdb_load -f in db && mdb_dump db >/dev/null",
        before=LMDB_BEFORE,
        needs=("mdb_load", "mdb_dump"),
    ),
]
