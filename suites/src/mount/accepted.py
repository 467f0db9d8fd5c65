"""Changes files on a full pool in a way that the kernel accepts without asking the pool.

usage: accepted.py ROOT map|write MIB before|after fits|too-much

`map` changes pages of shared mappings, `write` writes plainly, on a mount with `writeback`. It
happens before or after the pool is filled, and then everything is synced. `fits`: no sync may
fail, and the digest of each file is printed. `too-much`: some sync says ENOSPC, and the next sync
of each mapped file does not say it again.
"""

import errno
import hashlib
import mmap
import os
import sys

FILES = 4
PAGE = 4096

root, how, mib, when, expected = sys.argv[1:]
length = int(float(mib) * (1 << 20)) // FILES // PAGE * PAGE


def create(name):
    return os.open(os.path.join(root, name), os.O_RDWR | os.O_CREAT | os.O_EXCL)


def is_full(operation):
    """Whether the operation says that there is no space; any other error ends the program."""
    try:
        operation()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return True
    return False


def write_file(name, size):
    file = create(name)
    try:
        os.pwrite(file, os.urandom(size), 0)
        os.fsync(file)
    finally:
        os.close(file)


def fill():
    """Fills the pool with files that are synced, ever smaller, until there is no room at all."""
    for size in (4 << 20, 256 << 10, 32 << 10):
        count = 0
        while not is_full(lambda: write_file(f"fill-{size}-{count}", size)):
            count += 1


def change():
    for file, view, content in zip(files, views, contents):
        if view is not None:
            view[:] = content
        else:
            os.pwrite(file, content, 0)


files = [create(f"accepted-{number}") for number in range(FILES)]
contents = [os.urandom(length) for _ in files]
views = [None] * FILES
if how == "map":
    for file in files:
        os.ftruncate(file, length)
    views = [mmap.mmap(file, length) for file in files]
for file in files:
    os.fsync(file)

if when == "before":
    change()
fill()
if when == "after":
    change()

refused = [
    is_full(view.flush if view is not None else lambda: os.fsync(file))
    for file, view in zip(files, views)
]
if expected == "fits":
    if any(refused):
        sys.exit(f"{mib} MiB were accepted {when} the pool was full, and then refused: {refused}")
    for number, content in enumerate(contents):
        print(f"accepted-{number}", hashlib.sha256(content).hexdigest())
else:
    if not any(refused):
        sys.exit(f"{mib} MiB more than a full pool has room for were synced without an error")
    again = [is_full(lambda: os.fsync(file)) for file in files]
    if how == "map" and any(again):
        sys.exit(f"the loss is told more than once: {again}")
