"""What inotify tells of changes that come through the mount.

usage: inotify.py FOLDER
"""

import ctypes
import os
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)
CREATE, CLOSE_WRITE, MODIFY, MOVED_FROM, MOVED_TO, DELETE = 0x100, 8, 2, 0x40, 0x80, 0x200
HEADER = struct.Struct("iIII")

folder = sys.argv[1]
queue = libc.inotify_init1(os.O_NONBLOCK)
if libc.inotify_add_watch(queue, os.fsencode(folder), 0xFFF) < 0:
    sys.exit("the folder cannot be watched")
path = os.path.join(folder, "watched")
with open(path, "wb") as file:
    file.write(b"content")
os.rename(path, path + ".new")
os.unlink(path + ".new")
data = os.read(queue, 1 << 16)
seen, at = [], 0
while at < len(data):
    _, mask, _, length = HEADER.unpack_from(data, at)
    at += HEADER.size
    seen.append((mask, data[at : at + length].rstrip(b"\0")))
    at += length
for wanted, name in [
    (CREATE, b"watched"),
    (MODIFY, b"watched"),
    (CLOSE_WRITE, b"watched"),
    (MOVED_FROM, b"watched"),
    (MOVED_TO, b"watched.new"),
    (DELETE, b"watched.new"),
]:
    if not any(mask & wanted and found == name for mask, found in seen):
        sys.exit(f"no event {wanted:#x} of {name}: {seen}")
