# SPDX-License-Identifier: Apache-2.0
"""Applications that test_killed kills: how each is started, and how it is told whether everything it acknowledged is there."""

import os
import re
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
WRITERS = f"{HERE}/writers"
POSTGRES = r"""
export PATH=$(echo /usr/lib/postgresql/*/bin):$PATH PGHOST=$PWD PGUSER=postgres PGDATABASE=postgres
as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
serve() {
  as postgres -D "$PWD/d" -k "$PWD" -c listen_addresses= -c shared_buffers=16MB -c max_wal_size=32MB -c checkpoint_timeout=30s \
    -c autovacuum_naptime=1s -c logging_collector=off >>log 2>&1 &
  server=$!
  for i in $(seq 600); do pg_isready -q && return; sleep 0.05; done
  tail -n 20 log >&2
  exit 1
}
"""


class Lost(Exception):
    """What the application was promised is not there."""


class App:
    """One application with its files in one directory."""

    needs = ()
    start_seconds = 60

    def __init__(self, inputs):
        self.inputs, self.acked = inputs, 0

    def prepare(self):
        """A script that makes its files, run once under the library; or nothing."""

    def command(self):
        """A script that writes for ever and prints a number when that much is promised."""
        raise NotImplementedError

    def after(self):
        """A script under the library after the kill, that brings things in order and checks from there; or nothing."""

    def check(self, directory, mode):
        """From outside, without the library."""
        raise NotImplementedError


class Log(App):
    """Appends lines. In strict mode no line is torn, where it is the library that writes."""

    served = True

    def command(self):
        return f"exec {self.program()} {self.acked + 1}"

    def check(self, directory, mode):
        with open(f"{directory}/log", "rb") as f:
            data = f.read()
        lines = data.split(b"\n")
        for n, line in enumerate(lines[:-1], 1):
            if line != b"%d %s %d" % (n, b"x" * (n * 7919 % 500), n):
                raise Lost(f"line {n} is {line[:60]!r}, {len(line)} bytes")
        if len(lines) - 1 < self.acked:
            raise Lost(f"line {self.acked} was written; there are {len(lines) - 1}")
        if lines[-1] and mode == "strict" and self.served:
            raise Lost(f"a torn line behind line {len(lines) - 1}: {lines[-1]!r}")
        os.truncate(f"{directory}/log", len(data) - len(lines[-1]))
        self.acked = len(lines) - 1


def log(name, needed, program, served=True):
    return type(
        name, (Log,), {"needs": (needed,), "program": lambda self: program.format(i=self.inputs, w=WRITERS), "served": served}
    )


class LevelDB(App):
    needs = ("python3",)
    module = "plyvel"

    def command(self):
        return f"exec /usr/bin/python3 {WRITERS}/put_leveldb.py {self.acked + 1}"

    def check(self, directory, mode):
        check = f"""
import plyvel
db, n = plyvel.DB("{directory}/db", paranoid_checks=True), 0
for n, (k, v) in enumerate(db, 1):
    assert int(k) == n and v == b"%d " % n * (n * 7919 % 100), (k, n, v[:50])
print(n)
"""
        self.acked = counted(check, self.acked)


class LMDB(App):
    needs = ("python3",)
    module = "lmdb"
    writemap = ""

    def command(self):
        return f"exec /usr/bin/python3 {WRITERS}/put_lmdb.py {self.acked + 1} {self.writemap}"

    def check(self, directory, mode):
        check = f"""
import lmdb
env, last = lmdb.open("{directory}/db", map_size=64 << 20), 0
with env.begin() as t:
    for k, v in t.cursor():
        n = int(v.split()[0])
        assert v == b"%d " % n * (n * 7919 % 100 + 1) and n % 5000 == int(k[1:]), (k, v[:50])
        assert t.get((b"b" if k[:1] == b"a" else b"a") + k[1:]) == v, k
        last = max(last, n)
    assert t.stat()["entries"] == 2 * min(last, 5000), (t.stat(), last)
print(last)
"""
        self.acked = counted(check, self.acked)


class LMDBWriteMap(LMDB):
    writemap = "writemap"


class Git(App):
    needs = ("git",)

    def prepare(self):
        return "git init -q -b main r; git -C r config core.fsync all; git -C r config gc.auto 60; git -C r config gc.autoDetach false"

    def command(self):
        return f"""cd r; n={self.acked + 1}; while :; do
          for i in 1 2 3; do echo "$n $i" >>f$((n * i % 17)); done; git add .; git commit -q -m "$n"; echo $n; n=$((n + 1)); done"""

    def after(self):
        # As git says itself after a crash: what has been left locked is nobody's.
        return "cd r; find .git -name '*.lock' -delete; git fsck --full --strict --no-progress; git reset -q --hard; git status --short"

    def check(self, directory, mode):
        def git(*command):
            return subprocess.run(
                ["git", "-C", f"{directory}/r", "-c", "safe.directory=*", *command], capture_output=True, text=True, check=False
            )

        fsck, head = git("fsck", "--full", "--strict", "--no-progress"), git("log", "-1", "--format=%s")
        if fsck.returncode or head.returncode:
            raise Lost(f"git fsck: {fsck.stdout[-300:]}{fsck.stderr[-300:]}{head.stderr}")
        if int(head.stdout) < self.acked:
            raise Lost(f"commit {self.acked} was made; the last one is {head.stdout}")
        if int(git("rev-list", "--count", "HEAD").stdout) != int(head.stdout):
            raise Lost("a commit is missing between the first and the last one")
        self.acked = int(head.stdout)


class Copies(App):
    """rsync and tar, killed and then run to the end: what is there is what was copied."""

    def prepare(self):
        return """mkdir s t; for i in $(seq 60); do head -c $((i * 5000)) "$IN/binary" >s/f$i; done
cp "$IN/words" s/w; ln s/w s/h; tar -cf a.tar -C s ."""

    def check(self, directory, mode):
        done = subprocess.run(["diff", "-r", f"{directory}/s", f"{directory}/t"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Lost(f"the copy differs: {done.stdout[:400]}{done.stderr[:200]}")
        self.acked = 0


class Rsync(Copies):
    needs = ("rsync",)

    def command(self):
        return """n=1; while :; do echo $n; rm -rf t/f1*; for f in t/f*; do printf %s "$n" >>"$f"; done 2>/dev/null
          rsync -aH --inplace --no-whole-file --checksum s/ t/; n=$((n + 1)); done"""

    def after(self):
        return "rsync -aH --delete --checksum s/ t/"


class Tar(Copies):
    needs = ("tar",)

    def command(self):
        return "n=1; while :; do echo $n; rm -rf t/f2*; tar -C t -xf a.tar; n=$((n + 1)); done"

    def after(self):
        return "tar -C t -xf a.tar; tar -C t -df a.tar"


class PostgreSQL(App):
    """Clients that insert and pgbench beside them; then crash recovery, pgbench's sums, pg_amcheck and pg_checksums."""

    needs = ("setpriv",)
    start_seconds = 120

    def prepare(self):
        return (
            POSTGRES
            + r"""
chown postgres . ; as initdb -D d -k --auth=trust -E UTF8 --locale=C --no-instructions >log; serve; pgbench -q -i -s 1 2>>log
psql -q -c 'create extension amcheck' -c 'create table t (i bigint primary key, s text); create index on t (s)'; as pg_ctl -D d -m fast stop >>log"""
        )

    def command(self):
        return (
            POSTGRES
            + f"""
serve; pgbench -n -c 2 -T 3600 >>log 2>&1 &
until [[ $(psql -qAt -c 'select count(*) > 20 from pgbench_history') == t ]]; do sleep 0.02; done
seq {self.acked + 1} 10000000 | sed 's/.*/insert into t values (&, repeat(md5(&::text), 1 + & % 50)) returning i;/' | psql -qAt"""
        )

    def after(self):
        return POSTGRES + r"""
serve
psql -qAt -v ON_ERROR_STOP=1 <<'E'
with h as (select coalesce(sum(delta), 0) as sum from pgbench_history)
  select 'sums ' || (select sum(abalance) from pgbench_accounts) - h.sum || ' ' || (select sum(tbalance) from pgbench_tellers) - h.sum || ' ' ||
  (select sum(bbalance) from pgbench_branches) - h.sum from h;
select 'rows ' || count(*) || ' ' || max(i) from t where s = repeat(md5(i::text), (1 + i % 50)::int);
E
pg_amcheck --heapallindexed -d postgres >&2; as pg_ctl -D d -m fast stop >>log; grep -E 'PANIC|corrupt|invalid page' log >&2 && exit 1
echo over"""

    def ordered(self, text):
        if not re.search(r"^sums 0 0 0$", text, re.M) or "over" not in text:
            raise Lost(f"pgbench's sums or pg_amcheck: {text}")
        rows = [int(n) for n in re.search(r"^rows (\d+) (\d+)$", text, re.M).groups()]
        if rows[0] != rows[1] or rows[0] < self.acked:
            raise Lost(f"insert {self.acked} was committed; there are {rows[0]} rows up to {rows[1]}")
        self.acked = rows[0]

    def check(self, directory, mode):
        check = "$(echo /usr/lib/postgresql/*/bin)/pg_checksums --check -D d"
        done = subprocess.run(check, shell=True, cwd=directory, capture_output=True, text=True, check=False)
        if done.returncode or not re.search(r"Bad checksums: +0$", done.stdout, re.M):
            raise Lost(f"pg_checksums: {done.stdout}{done.stderr}")


def counted(check, acked):
    """Run it with the system's Python. It prints the last number that is there."""
    done = subprocess.run(["/usr/bin/python3", "-c", check], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Lost(done.stderr[-500:])
    if int(done.stdout) < acked:
        raise Lost(f"{acked} was committed; there is {done.stdout}")
    return int(done.stdout)


JAVA = "java -XX:TieredStopAtLevel=1 -XX:-UsePerfData -Xshare:auto"
APPS = {
    "python": log("Python", "python3", "/usr/bin/python3 {w}/append.py"),
    "perl": log("Perl", "perl", "perl {w}/append.pl"),
    "lua": log("Lua", "lua5.4", "lua5.4 {w}/append.lua"),
    "node": log("Node", "node", "node {w}/append.js"),
    "java": log("Java", "append-java", JAVA + " -cp {i}/append-java Append"),
    "musl": log("Musl", "append-musl", "{i}/append-musl"),
    "bash": log("Bash", "bash", "bash {w}/append.sh", served=False),
    "busybox": log("Busybox", "busybox", "busybox ash {w}/append.sh", served=False),
    "static": log("Static", "append-static", "{i}/append-static", served=False),
    "go": log("Go", "append-go", "{i}/append-go", served=False),
    "git": Git,
    "rsync": Rsync,
    "tar": Tar,
    "leveldb": LevelDB,
    "lmdb": LMDB,
    "lmdb-writemap": LMDBWriteMap,
    "postgresql": PostgreSQL,
}


def missing(app, built, path):
    """What it needs and this machine doesn't have."""
    lacking = [n for n in app.needs if n not in built and not shutil.which(n, path=path)]
    module = getattr(app, "module", None)
    if (
        module
        and subprocess.run(["/usr/bin/python3", "-c", f"import {module}"], stderr=subprocess.DEVNULL, check=False).returncode
    ):
        lacking.append(f"python3-{module}")
    if (
        app is PostgreSQL
        and not subprocess.run("ls /usr/lib/postgresql/*/bin/postgres", shell=True, capture_output=True, check=False).stdout
    ):
        lacking.append("postgresql")
    return lacking
