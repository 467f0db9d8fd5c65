"""Flags of files by chattr, and what they forbid: prints what every call came to.

Run as root in an empty folder; run again on another file system, the words must be the same.
Opening for writing and writing are one step: some file systems refuse the one, some the other.
"""

import errno
import os
import stat
import subprocess
import sys

OWNER, OTHER = 1001, 1002


def told(call, *words):
    """What a call came to: ok, or the name of its error."""
    try:
        call(*words)
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]


def chattr(words, path):
    subprocess.run(["chattr", *words.split(), path], check=True)


def flags(path):
    """The letters of lsattr; `e` says how ext4 keeps content and `p` is a number of its own."""
    said = subprocess.run(["lsattr", "-d", path], check=True, capture_output=True, text=True)
    letters = said.stdout.split()[0]
    return "".join(sorted(letters.replace("-", "").replace("e", ""))) or "-"


def put(path, data, how, at=None):
    opened = os.open(path, os.O_WRONLY | how)
    try:
        os.write(opened, data) if at is None else os.pwrite(opened, data, at)
    finally:
        os.close(opened)


def close(opened):
    os.close(opened)


def reserve(path):
    opened = os.open(path, os.O_RDWR | os.O_APPEND)
    try:
        os.posix_fallocate(opened, 0, 4096)
    finally:
        os.close(opened)


FILE_CALLS = {
    "read": lambda f: put(f + ".copy", open(f, "rb").read(), os.O_CREAT),
    "overwrite": lambda f: put(f, b"over", 0, 0),
    "append": lambda f: put(f, b"more", os.O_APPEND),
    "truncate": lambda f: os.truncate(f, 3),
    "extend": lambda f: os.truncate(f, 300),
    "open and truncate": lambda f: close(os.open(f, os.O_WRONLY | os.O_TRUNC)),
    "chmod": lambda f: os.chmod(f, 0o600),
    "chown": lambda f: os.chown(f, OTHER, OTHER),
    "touch": lambda f: os.utime(f),
    "set times": lambda f: os.utime(f, (1, 2)),
    "set xattr": lambda f: os.setxattr(f, "user.new", b"x"),
    "remove xattr": lambda f: os.removexattr(f, "user.there"),
    "reserve": reserve,
    "link": lambda f: os.link(f, f + ".link"),
    "unlink": os.unlink,
    "rename": lambda f: os.rename(f, f + ".new"),
    "rename over": lambda f: os.rename(f + ".other", f),
}

FOLDER_CALLS = {
    "list": lambda d: os.listdir(d),
    "create": lambda d: put(d + "/new", b"x", os.O_CREAT | os.O_EXCL),
    "mkdir": lambda d: os.mkdir(d + "/new"),
    "symlink": lambda d: os.symlink("x", d + "/new"),
    "mkfifo": lambda d: os.mkfifo(d + "/new"),
    "link": lambda d: os.link(d + ".outside", d + "/new"),
    "unlink": lambda d: os.unlink(d + "/file"),
    "rmdir": lambda d: os.rmdir(d + "/sub"),
    "rename inside": lambda d: os.rename(d + "/file", d + "/new"),
    "rename out": lambda d: os.rename(d + "/file", d + ".out"),
    "rename in": lambda d: os.rename(d + ".outside", d + "/new"),
    "rename over": lambda d: os.rename(d + ".outside", d + "/file"),
    "write inside": lambda d: put(d + "/file", b"x", 0, 0),
    "chmod": lambda d: os.chmod(d, 0o700),
    "tmpfile": lambda d: close(os.open(d, os.O_TMPFILE | os.O_WRONLY)),
    "rmdir it": os.rmdir,
    "rename it": lambda d: os.rename(d, d + ".new"),
}


def make_file(path):
    for name in (path, path + ".other"):
        put(name, b"content\n", os.O_CREAT)
    os.setxattr(path, "user.there", b"x")


def make_folder(path):
    os.makedirs(path + "/sub")
    for name in (path + "/file", path + ".outside"):
        put(name, b"content\n", os.O_CREAT)


def free(folder):
    subprocess.run(["chattr", "-R", "-i", "-a", folder], stderr=subprocess.DEVNULL)
    subprocess.run(["rm", "-rf", folder], check=True)


def forbidden():
    for make, calls in ((make_file, FILE_CALLS), (make_folder, FOLDER_CALLS)):
        for flag in ("", "i", "a"):
            for name, call in calls.items():
                os.mkdir("work")
                make("work/it")
                if flag:
                    chattr("+" + flag, "work/it")
                print(make.__name__, flag or "-", name, told(call, "work/it"))
                free("work")


def inherited():
    for words in ("+d", "+A", "+S", "+D", "+dASD", "+a", "+i", "+dASDa"):
        os.mkdir("work")
        chattr(words.replace("i", ""), "work") if words != "+i" else None
        put("work/file", b"x", os.O_CREAT)
        os.mkdir("work/folder")
        print("inherited", words, flags("work"), flags("work/file"), flags("work/folder"))
        free("work")


def changed_by(uid, words, path):
    """Whether a user may change flags."""
    return subprocess.run(
        ["chattr", *words.split(), path], user=uid, group=uid, extra_groups=[],
        stderr=subprocess.DEVNULL).returncode == 0


def permitted():
    os.mkdir("work")
    os.chmod("work", 0o755)
    for path, is_folder in (("work/file", False), ("work/folder", True)):
        os.mkdir(path) if is_folder else put(path, b"x", os.O_CREAT)
        os.chown(path, OWNER, OWNER)
        for uid in (OWNER, OTHER, 0):
            for words in ("+d", "-d", "+A", "-A", "+i", "-i", "+a", "-a", "+D", "-D", "+C"):
                done = changed_by(uid, words, path)
                print("permitted", path, uid, words, done, flags(path))
        chattr("+i", path)
        for uid in (OWNER, OTHER):
            for words in ("-i", "+d", "+a"):
                print("permitted +i", path, uid, words, changed_by(uid, words, path), flags(path))
        chattr("-i", path)
    before = os.stat("work/file").st_ctime_ns
    chattr("+d", "work/file")
    print("change time", os.stat("work/file").st_ctime_ns > before)
    free("work")


def access_times():
    os.mkdir("work")
    put("work/file", b"x", os.O_CREAT)
    os.utime("work/file", (1, 1))
    chattr("+A", "work/file")
    open("work/file").read()
    print("read +A", os.stat("work/file").st_atime)
    put("work/other", b"x", os.O_CREAT)
    os.utime("work/other", (1, 1))
    open("work/other").read()
    print("read -A", os.stat("work/other").st_atime > 1)
    free("work")


def kept():
    """What is there over a remount: made in the first run, told in the second."""
    if not os.path.exists("kept"):
        os.mkdir("kept")
        for flag in "aidAS":
            put("kept/" + flag, b"x", os.O_CREAT)
            chattr("+" + flag, "kept/" + flag)
        chattr("+dASD", "kept")
        return
    for flag in "aidAS":
        print("kept", flag, flags("kept/" + flag), told(put, "kept/" + flag, b"y", 0, 0))
    print("kept", flags("kept"))
    free("kept")


if sys.argv[1] == "first":
    forbidden()
    inherited()
    permitted()
    access_times()
kept()
assert stat.S_ISDIR(os.stat(".").st_mode)
