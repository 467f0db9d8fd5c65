"""Names, links, directories and times at their limits: prints what every call came to.

Run as root in an empty folder that all may enter; after a remount the argument `second` prints
the times that were set before.
"""

import errno
import fcntl
import os
import shutil
import subprocess
import sys

OWNER, OTHER, GROUP = 1001, 1002, 1003
# 1901, the last nanosecond before 1970, 2038 and 2445: nearly as far as ext4 goes.
TIMES = (-(2**31) * 10**9 + 10**9, -1, -(10**9) + 1, 0, 2**31 * 10**9 + 1, 15 * 10**18 + 999999999)


def told(call, *words):
    """What a call came to: ok, or the name of its error."""
    try:
        call(*words)
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]


def as_user(uid, groups, call):
    """What a call of a user comes to, in a process of its own."""
    child = os.fork()
    if child == 0:
        status = 0
        try:
            os.setgroups(groups)
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            call()
        except OSError as error:
            status = error.errno
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return errno.errorcode[status] if status else "ok"


def create(path, mode=0o644):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))


def shown(path):
    found = os.lstat(path)
    return f"{found.st_mode:o} {found.st_uid} {found.st_gid} {found.st_nlink}"


def names():
    os.mkdir("names")
    wild = bytes(byte for byte in range(1, 256) if byte != ord("/"))
    candidates = {
        "every byte": wild,
        "255": b"x" * 255,
        "256": b"x" * 256,
        "85 characters of three bytes": "\u20ac".encode() * 85,
        "86 characters of three bytes": "\u20ac".encode() * 86,
        "three dots": b"...",
        "a newline": b"\n",
        "not text": b"\xff\xfe",
        "half a character": b"\xe2\x82",
        "upper": b"Case",
        "lower": b"case",
        "composed": "\u00e9".encode(),
        "decomposed": "e\u0301".encode(),
        "dot at the end": b"name.",
        "space": b" ",
    }
    for title, name in candidates.items():
        print("name", title, told(create, b"names/" + name))
    held = set(os.listdir(b"names"))
    print("listed", len(held), [title for title, name in candidates.items() if name in held])
    for title, name in candidates.items():
        print("name", title, told(os.unlink, b"names/" + name))
    for path in ("names/.", "names/..", "names/new/", "names/a/b", "names/new//", ""):
        print("path", path, told(create, path), told(os.mkdir, path), told(os.rmdir, path))
    os.rmdir("names")


def long_paths():
    """A path of 4095 bytes is one, one of 4096 is not; what is deeper can be reached in steps."""
    os.mkdir("deep")
    top = os.open(".", os.O_RDONLY)
    os.chdir("deep")
    part = "d" * 255
    for _ in range(20):
        os.mkdir(part)
        os.chdir(part)
    create("leaf")
    os.fchdir(top)
    for length in (4094, 4095, 4096, 4097):
        path = "deep"
        while len(path) + 256 < length - 1:
            path += "/" + part
        path += "/" * (length - len(path) - 1) + "x"
        assert len(path) == length
        print("path of", length, told(os.mkdir, path), told(os.stat, path))
    shutil.rmtree("deep")
    target = "t" * 4095
    print("symlink", told(os.symlink, target, "link"), len(os.readlink("link")))
    print("symlink", told(os.symlink, target + "t", "link2"), told(os.symlink, "", "link3"))
    os.unlink("link")
    # Links that lead to themselves and to each other; chains as long as Linux follows, and longer.
    os.symlink("self", "self")
    os.symlink("there", "here")
    os.symlink("here/x", "there")
    os.symlink("..", "up")
    for way in ("self", "self/x", "here", "there", "up/" * 30 + "none"):
        came_to = [told(call, way, *rest) for call, *rest in
                   ((os.stat,), (os.open, os.O_RDWR), (os.chmod, 0))]
        print("loop", way[:8], *came_to)
    for length in (39, 40, 41):
        for number in range(length):
            os.symlink(f"chain{number + 1}" if number + 1 < length else ".", f"chain{number}")
        print("chain of", length, told(os.stat, "chain0"))
        for number in range(length):
            os.unlink(f"chain{number}")
    for link in ("self", "here", "there", "up"):
        os.unlink(link)


def sticky():
    for mode in (0o1777, 0o777):
        for what in ("file", "folder"):
            os.mkdir("sticky")
            os.chmod("sticky", mode)
            os.chown("sticky", GROUP, GROUP)

            def make(path):
                create(path) if what == "file" else os.mkdir(path)
                os.chown(path, OWNER, OWNER)

            make("sticky/a")
            remove = os.unlink if what == "file" else os.rmdir
            for uid in (OTHER, OWNER, GROUP):
                renamed = as_user(uid, [], lambda: os.rename("sticky/a", "sticky/b"))
                if renamed == "ok":
                    os.rename("sticky/b", "sticky/a")
                removed = as_user(uid, [], lambda: remove("sticky/a"))
                print("sticky", f"{mode:o}", what, uid, renamed, removed)
                if removed == "ok":
                    make("sticky/a")
            shutil.rmtree("sticky")


def setgid():
    os.mkdir("group")
    os.chown("group", OWNER, GROUP)
    os.chmod("group", 0o2777)
    os.umask(0)
    for uid, groups in ((OWNER, []), (OWNER, [GROUP]), (OTHER, []), (0, [])):
        for mode in (0o755, 0o2755, 0o2745, 0o4755, 0o6777):
            made = [
                as_user(uid, groups, lambda: create("group/file", mode)),
                as_user(uid, groups, lambda: os.mkdir("group/sub", mode)),
                as_user(uid, groups, lambda: os.mknod("group/fifo", 0o010000 | mode)),
                as_user(uid, groups, lambda: os.symlink("x", "group/link")),
            ]
            left = [shown("group/" + name) for name in ("file", "sub", "fifo", "link")]
            changed = as_user(uid, groups, lambda: os.chmod("group/file", 0o2775))
            print("setgid", uid, groups, f"{mode:o}", made, left, changed, shown("group/file"))
            shutil.rmtree("group/sub")
            for name in ("file", "fifo", "link"):
                os.unlink("group/" + name)
    os.umask(0o022)
    shutil.rmtree("group")


def links():
    """An inode has at most so many names, and says so."""
    os.mkdir("links")
    create("links/0")
    count, outcome = 1, "ok"
    while outcome == "ok" and count < 70_000:
        outcome = told(os.link, "links/0", f"links/{count}")
        count += outcome == "ok"
    print("links", count, outcome, os.stat("links/0").st_nlink)
    os.unlink("links/1")
    print("links", told(os.link, "links/0", "links/again"), told(os.link, "links/0", "links/more"))
    shutil.rmtree("links")
    os.mkdir("sub")
    for name in ("a", "b", "c"):
        os.mkdir("sub/" + name)
    os.rename("sub/c", "moved")
    print("subdirectories", os.stat("sub").st_nlink, os.stat("moved").st_nlink)
    print("link to a directory", told(os.link, "sub", "again"))
    shutil.rmtree("sub")
    os.rmdir("moved")


def identity():
    """No inode number comes back with the same generation."""
    seen = set()
    for _ in range(200):
        create("one")
        said = subprocess.run(["lsattr", "-v", "one"], check=True, capture_output=True, text=True)
        seen.add((os.stat("one").st_ino, said.stdout.split()[0]))
        os.unlink("one")
    print("identity", len(seen))


def leases():
    """Leases are kept or refused by the kernel, and leave nothing behind."""
    create("leased")
    for way, kinds in ((os.O_RDONLY, "RDLCK WRLCK UNLCK"), (os.O_RDWR, "RDLCK WRLCK UNLCK")):
        file = os.open("leased", way)
        for kind in kinds.split():
            came_to = told(fcntl.fcntl, file, fcntl.F_SETLEASE, getattr(fcntl, "F_" + kind))
            print("lease", way, kind, came_to, fcntl.fcntl(file, fcntl.F_GETLEASE))
        os.close(file)
    os.unlink("leased")


def times():
    os.mkdir("times")
    for number, moment in enumerate(TIMES):
        path = f"times/{number}"
        create(path)
        os.utime(path, ns=(moment, moment + 7 if moment < 0 else moment - 7))
        os.symlink("x", path + ".link")
        os.utime(path + ".link", ns=(moment, moment), follow_symlinks=False)
    for text in ("1901-12-14 12:00:00.123456789", "1969-12-31 23:59:59.999999999",
                 "2038-01-19 03:14:08", "2446-05-10 22:38:54.5"):
        path = "times/" + text[:4]
        subprocess.run(["touch", "-d", text + " UTC", path], check=True)
    tell_times()


def tell_times():
    for name in sorted(os.listdir("times")):
        found = os.lstat("times/" + name)
        print("times", name, found.st_atime_ns, found.st_mtime_ns)


if sys.argv[1] == "first":
    names()
    long_paths()
    sticky()
    setgid()
    links()
    identity()
    leases()
    times()
else:
    tell_times()
    shutil.rmtree("times")
