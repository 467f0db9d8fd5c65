"""Locks a file, says so, and holds the lock until its input ends; writes that to the file.

lock.py FAMILY MODE FILE [wait] [FIRST LEN]: "asks" if it waits; "held", "busy" or "interrupted"
lock.py FAMILY count FILE ROUNDS: increments the number in FILE under a lock, so many times
"""
import fcntl, os, signal, struct, sys

KINDS = {"shared": fcntl.F_RDLCK, "exclusive": fcntl.F_WRLCK, "none": fcntl.F_UNLCK}
SET_OF_OPEN_FILE = 37


class Interrupted(Exception):
    pass


def interrupt(*_):
    raise Interrupted


def lock(family, kind, file, waits, first=0, length=0):
    if family == "flock":
        how = {"shared": fcntl.LOCK_SH, "exclusive": fcntl.LOCK_EX, "none": fcntl.LOCK_UN}[kind]
        return fcntl.flock(file, how | (0 if waits else fcntl.LOCK_NB))
    asked = struct.pack("hhqqi4x", KINDS[kind], os.SEEK_SET, first, length, 0)
    command = SET_OF_OPEN_FILE if family == "ofd" else fcntl.F_SETLK
    fcntl.fcntl(file, command + (1 if waits else 0), asked)


def count(family, file, rounds):
    for _ in range(rounds):
        lock(family, "exclusive", file, True)
        number = int(os.pread(file, 20, 0))
        os.pwrite(file, b"%d" % (number + 1), 0)
        lock(family, "none", file, False)


def main(family, kind, path, *rest):
    signal.signal(signal.SIGALRM, interrupt)
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    if kind == "count":
        return count(family, file, int(rest[0]))
    waits = "wait" in rest
    first, length = [int(word) for word in rest if word != "wait"] or (0, 0)
    try:
        if waits:
            print("asks", flush=True)
        lock(family, kind, file, waits, first, length)
        print("held", flush=True)
    except BlockingIOError:
        print("busy", flush=True)
    except Interrupted:
        print("interrupted", flush=True)
    late = sys.stdin.read()
    if late:
        try:
            os.pwrite(file, late.encode(), 0)
            print("written")
        except OSError:
            print("refused")


main(*sys.argv[1:])
