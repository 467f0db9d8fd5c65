"""Very many locks of ranges at the same time.

usage: locks.py ROOT COUNT

They are spread over files, as Linux goes through all locks of a file for each new one. Some are
POSIX locks of several processes, the others belong to open files.
"""

import fcntl
import os
import struct
import sys

LOCKS_OF_A_FILE = 1000
PROCESSES = 4
OFD_GETLK, OFD_SETLK = 36, 37

root, count = sys.argv[1], int(sys.argv[2])
folder = os.path.join(root, "locks")


def request(start):
    return struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, start, 1, 0)


def hold(number, ready, go):
    """Locks every other byte of its files until all others have done so too."""
    files = []
    share = count // PROCESSES
    for first in range(0, share, LOCKS_OF_A_FILE):
        path = os.path.join(folder, f"{number}-{first}")
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        command = fcntl.F_SETLK if number % 2 else OFD_SETLK
        for at in range(min(LOCKS_OF_A_FILE, share - first)):
            fcntl.fcntl(file, command, request(2 * at))
        files.append(file)
    os.write(ready, b".")
    os.read(go, 1)


os.mkdir(folder)
(told, ready), (go, start) = os.pipe(), os.pipe()
holders = []
for number in range(PROCESSES):
    child = os.fork()
    if child == 0:
        os.close(start)
        status = 1
        try:
            hold(number, ready, go)
            status = 0
        finally:
            os._exit(status)
    holders.append(child)
os.close(ready)
said = 0
while said < PROCESSES and (more := os.read(told, 64)):
    said += len(more)
free = 0
for name in os.listdir(folder):
    file = os.open(os.path.join(folder, name), os.O_RDWR)
    found = struct.unpack("hhqqi4x", fcntl.fcntl(file, OFD_GETLK, request(0)))[0]
    free += found == fcntl.F_UNLCK
    os.close(file)
os.close(start)
failed = sum(1 for child in holders if os.waitpid(child, 0)[1] != 0)
for name in os.listdir(folder):
    file = os.open(os.path.join(folder, name), os.O_RDWR)
    fcntl.fcntl(file, OFD_SETLK, request(0))
    os.close(file)
    os.unlink(os.path.join(folder, name))
os.rmdir(folder)
if failed or free or said < PROCESSES:
    sys.exit(f"{failed} processes failed, {free} files were not locked")
