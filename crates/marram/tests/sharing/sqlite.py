"""Increments a number in a database with a rollback journal: sqlite.py FILE ROUNDS"""
import sqlite3, sys

path, rounds = sys.argv[1:]
database = sqlite3.connect(path, timeout=120, isolation_level=None)
assert database.execute("PRAGMA journal_mode").fetchone() == ("delete",)
for _ in range(int(rounds)):
    database.execute("BEGIN IMMEDIATE")
    (number,) = database.execute("SELECT number FROM counted").fetchone()
    database.execute("UPDATE counted SET number = ?", (number + 1,))
    database.execute("INSERT INTO log VALUES (?)", (number + 1,))
    database.execute("COMMIT")
