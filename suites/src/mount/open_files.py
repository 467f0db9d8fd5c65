"""Very many files that are open and have no name any more.

usage: open_files.py ROOT COUNT

Several processes hold them, each as many as it may.
"""

import os
import resource
import sys

SPARE = 64

root, count = sys.argv[1], int(sys.argv[2])
folder = os.path.join(root, "open")
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
if most == resource.RLIM_INFINITY:
    most = 1 << 20
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
share = min(count, most - SPARE)


def hold(first, last, ready, go):
    """Makes and unlinks files, and reads them again when all others have theirs too."""
    files = []
    for number in range(first, last):
        path = os.path.join(folder, str(number))
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        os.write(file, b"%d" % number)
        os.unlink(path)
        files.append(file)
    os.write(ready, b".")
    os.read(go, 1)
    wrong = [n for n, file in enumerate(files, first) if os.pread(file, 32, 0) != b"%d" % n]
    return 1 if wrong else 0


os.mkdir(folder)
(told, ready), (go, start) = os.pipe(), os.pipe()
holders = []
for first in range(0, count, share):
    child = os.fork()
    if child == 0:
        os.close(start)
        status = 1
        try:
            status = hold(first, min(first + share, count), ready, go)
        finally:
            os._exit(status)
    holders.append(child)
os.close(ready)
said = 0
while said < len(holders) and (more := os.read(told, 64)):
    said += len(more)
os.rmdir(folder)
os.close(start)
failed = sum(1 for child in holders if os.waitpid(child, 0)[1] != 0)
if failed or said < len(holders):
    sys.exit(f"{failed} of {len(holders)} processes could not make, keep or read their files")
