#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Commits transactions to a SQLite database and says on standard output which have returned; test_kills kills it.

sqlite_writer.py DATABASE JOURNAL_MODE SEED NEXT
"""
import os
import random
import sqlite3
import sys


def content(number, row):
    return random.Random(number * 64 + row).randbytes(1 + (number * 7919 + row * 104729) % 3000)


def rows_of(number):
    return 1 + number % 5


def say(what, number):
    os.write(1, b"%s %d\n" % (what, number))


def main():
    path, journal, seed, number = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    rng = random.Random(seed)
    db = sqlite3.connect(path, isolation_level=None, timeout=30)
    got = db.execute(f"pragma journal_mode={journal}").fetchone()[0]
    if got != journal:
        sys.exit(f"journal mode is {got}")
    db.execute("pragma synchronous=full")
    db.execute("create table if not exists t(number integer, row integer, v blob, primary key(number, row))")
    db.execute("create table if not exists last(id integer primary key, number integer)")
    say(b"pid", os.getpid())
    while True:
        db.execute("begin immediate")
        for row in range(rows_of(number)):
            db.execute("insert into t values(?, ?, ?)", (number, row, content(number, row)))
        db.execute("insert or replace into last values(1, ?)", (number,))
        db.execute("commit")
        say(b"commit", number)
        if rng.randrange(200) == 0:
            db.execute("pragma wal_checkpoint(truncate)" if journal == "wal" else "vacuum")
        number += 1


if __name__ == "__main__":
    main()
