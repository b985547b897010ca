#!/usr/bin/env python3
"""A program with a database, as tests/integration/objects_programs.sh runs it under `tier run`.

usage: objects_sql.py write JOURNAL-MODE FILE BOARD   insert for ever, tell BOARD of each commit
       objects_sql.py look FILE BOARD...              what was told must be there, and sound

SPDX-License-Identifier: Apache-2.0
"""
import sqlite3
import sys


def write(mode, path, board):
    db = sqlite3.connect(path, timeout=60)
    db.execute(f"pragma journal_mode={mode}")
    db.execute("pragma synchronous=full")
    db.execute("create table if not exists t(who text, n integer, filler blob)")
    db.commit()
    n = db.execute("select count(*) from t where who = ?", (board,)).fetchone()[0]
    with open(board, "w", encoding="ascii", buffering=1) as told:
        while True:
            with db:
                db.execute("insert into t values (?, ?, randomblob(700))", (board, n))
            told.write(f"{n}\n")
            n += 1


def look(path, boards):
    db = sqlite3.connect(path, timeout=60)
    sound = db.execute("pragma integrity_check").fetchone()[0]
    told = 0
    for board in boards:
        with open(board, encoding="ascii") as f:
            want = sum(1 for line in f if line.endswith("\n"))
        have = db.execute("select count(*) from t where who = ?", (board,)).fetchone()[0]
        told += want
        if have < want:
            sys.exit(f"{board}: {want} commits were told, {have} are there")
    if sound != "ok":
        sys.exit(f"integrity_check: {sound}")
    print(told)


if sys.argv[1] == "write":
    write(*sys.argv[2:5])
else:
    look(sys.argv[2], sys.argv[3:])
