"""An id-mapped view of a mount.

usage: idmap.py SOURCE TARGET

Mounts SOURCE on TARGET so that users 0 to 999 on disk are seen as 100000 to 100999.
"""

import ctypes
import os
import signal
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 1, 0o2000000
AT_EMPTY_PATH, MOVE_MOUNT_F_EMPTY_PATH, AT_FDCWD = 0x1000, 4, -100
CLONE_NEWUSER, ATTR_IDMAP = 0x10000000, 0x00100000


def call(*words):
    result = libc.syscall(*words)
    if result < 0:
        number = ctypes.get_errno()
        sys.exit(f"system call {words[0]}: {os.strerror(number)}")
    return result


def namespace():
    """A user namespace in which ids are shifted."""
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        failed = libc.unshare(CLONE_NEWUSER)
        os.write(told, b"!" if failed else b".")
        signal.pause()
    if os.read(ready, 1) != b".":
        sys.exit("no user namespace can be had")
    for kind in ("uid", "gid"):
        with open(f"/proc/{child}/{kind}_map", "w") as table:
            table.write("0 100000 1000")
    found = os.open(f"/proc/{child}/ns/user", os.O_RDONLY)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return found


source, target = (os.fsencode(path) for path in sys.argv[1:])
tree = call(OPEN_TREE, AT_FDCWD, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)
attributes = struct.pack("QQQQ", ATTR_IDMAP, 0, 0, namespace())
call(MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, attributes, len(attributes))
call(MOVE_MOUNT, tree, b"", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH)
