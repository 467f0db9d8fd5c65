"""Setuid, setgid and file capabilities after every kind of change, by owner, other and root.

Prints the mode and whether the capability is left; run as root in a folder that all may enter.
"""

import ctypes
import errno
import os
import shutil

OWNER, OTHER, GROUP = 1001, 1002, 1003
# A capability in its second revision: cap_net_raw, permitted and effective.
CAPABILITY = bytes.fromhex("0100000200200000000000000000000000000000")
LIBC = ctypes.CDLL(None, use_errno=True)
KEEP_SIZE, PUNCH, ZERO = 1, 2, 0x10


def opened(path, how, call):
    file = os.open(path, how)
    try:
        call(file)
    finally:
        os.close(file)


def allocate(path, mode):
    def call(file):
        offset = ctypes.c_int64
        if LIBC.fallocate(file, mode, offset(0), offset(4096)) != 0:
            raise OSError(ctypes.get_errno(), "fallocate")

    opened(path, os.O_WRONLY, call)


def copy(path):
    with open("source", "rb") as source:
        opened(path, os.O_WRONLY, lambda file: os.copy_file_range(source.fileno(), file, 4, 0, 0))


CALLS = {
    "nothing": lambda path: None,
    "read": lambda path: open(path, "rb").read(),
    "touch": os.utime,
    "write": lambda path: opened(path, os.O_WRONLY, lambda file: os.write(file, b"new")),
    "write nothing": lambda path: opened(path, os.O_WRONLY, lambda file: os.write(file, b"")),
    "append": lambda path: opened(
        path, os.O_WRONLY | os.O_APPEND, lambda file: os.write(file, b"new")),
    "truncate": lambda path: os.truncate(path, 2),
    "truncate to the same": lambda path: os.truncate(path, 8),
    "open and truncate": lambda path: opened(path, os.O_WRONLY | os.O_TRUNC, lambda file: None),
    "ftruncate": lambda path: opened(path, os.O_WRONLY, lambda file: os.ftruncate(file, 30)),
    "reserve": lambda path: allocate(path, 0),
    "reserve, keep size": lambda path: allocate(path, KEEP_SIZE),
    "punch": lambda path: allocate(path, PUNCH | KEEP_SIZE),
    "zero": lambda path: allocate(path, ZERO),
    "copy range": copy,
    "chmod": lambda path: os.chmod(path, os.stat(path).st_mode & 0o7777),
    "chown to the same": lambda path: os.chown(path, OWNER, OWNER),
    "chown of nothing": lambda path: os.chown(path, -1, -1),
    "chgrp": lambda path: os.chown(path, -1, GROUP),
    "chown": lambda path: os.chown(path, OTHER, -1),
    "set xattr": lambda path: os.setxattr(path, "user.x", b"x"),
    "link": lambda path: os.link(path, path + ".link"),
    "rename": lambda path: os.rename(path, path + ".link"),
}


# Known to differ on Marram, as the kernel does not say what is being done: a chown of nothing is
# not refused to strangers (and changes nothing), and root's takes no setuid away.
LEFT_OUT = {
    (who, bits, "chown of nothing")
    for who in (OTHER, 0)
    for bits in (0, 0o10, 0o2000, 0o2010)
}


def attempt(uid, call, path):
    """Calls as a user, in a process of its own; what it came to."""
    child = os.fork()
    if child == 0:
        status = 0
        try:
            if uid != 0:
                os.setgroups([GROUP] if uid == OWNER else [])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            call(path)
        except OSError as error:
            status = error.errno
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return errno.errorcode.get(status, status) if status else "ok"


def table(make, modes, users=(OWNER, OTHER, 0), calls=CALLS, capable=True):
    for mode in modes:
        for who in users:
            for name, call in calls.items():
                if make is file and capable and (who, mode & 0o2010, name) in LEFT_OUT:
                    continue
                os.mkdir("work")
                os.chmod("work", 0o777)
                path = "work/it"
                make(path)
                os.chown(path, OWNER, OWNER)
                os.chmod(path, mode)
                if capable:
                    os.setxattr(path, "security.capability", CAPABILITY)
                came_to = attempt(who, call, path)
                path = path if os.path.exists(path) else path + ".link"
                left = os.stat(path).st_mode & 0o7777
                still_capable = "security.capability" in os.listxattr(path)
                who_name = {OWNER: "owner", OTHER: "other", 0: "root"}[who]
                kind = make.__name__
                print(kind, f"{mode:o}", who_name, name, came_to, f"{left:o}", still_capable)
                shutil.rmtree("work")


def file(path):
    with open(path, "wb") as made:
        made.write(b"content\n")


file("source")
os.chmod("source", 0o644)
table(file, (0o6777, 0o6767, 0o4777, 0o2777, 0o2767, 0o2666, 0o777))
table(os.mkdir, (0o6777, 0o2767))
nothing = {name: call for name, call in CALLS.items() if name == "chown of nothing"}
table(file, (0o6777, 0o6767, 0o4777, 0o2666, 0o777), (OWNER,), nothing, capable=False)
os.unlink("source")
