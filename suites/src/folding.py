"""Names of a dataset that folds them, through the kernel: a name made, found, renamed and removed
by other spellings, with what the kernel could remember in between."""

import errno
import os
import subprocess
import sys
import threading


def told(call, *words):
    try:
        call(*words)
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]


def expect(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: {found!r}, not {wanted!r}")


def put(path, text, how=os.O_CREAT):
    file = os.open(path, os.O_WRONLY | how)
    os.write(file, text.encode())
    os.close(file)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def spellings():
    put("Stra\u00dfe", "one")
    for other in ("strasse", "STRASSE", "stra\u00dfe", "Stra\u1e9ee"):
        expect("found by " + other, read(other), "one")
        expect("made again as " + other, told(put, other, "x", os.O_CREAT | os.O_EXCL), "EEXIST")
        expect("mkdir " + other, told(os.mkdir, other), "EEXIST")
        expect("symlink " + other, told(os.symlink, "x", other), "EEXIST")
        expect("link " + other, told(os.link, "strasse", other), "EEXIST")
        expect("the same file", os.stat(other).st_ino, os.stat("Stra\u00dfe").st_ino)
    put("STRASSE", "two", os.O_CREAT | os.O_TRUNC)
    expect("written by another spelling", read("Stra\u00dfe"), "two")
    expect("listed", os.listdir("."), ["Stra\u00dfe"])
    os.unlink("STRASSE")
    expect("listed", os.listdir("."), [])


def remembered():
    """What was found, or not found, under one spelling says nothing once another has changed."""
    for _ in range(50):
        for name in ("foo", "FOO", "Foo"):
            expect("nothing yet " + name, told(os.stat, name), "ENOENT")
        put("fOO", "1")
        for name in ("foo", "FOO", "Foo"):
            expect("made as fOO, " + name, told(os.stat, name), "ok")
        os.rename("FOO", "bar")
        for name in ("foo", "FOO", "Foo", "fOO"):
            expect("renamed away, " + name, told(os.stat, name), "ENOENT")
        expect("renamed", [read("BAR"), os.listdir(".")], ["1", ["bar"]])
        put("other", "2")
        os.rename("OTHER", "Bar")
        expect("replaced", [read("BAR"), os.listdir(".")], ["2", ["Bar"]])
        os.unlink("bAR")
        for name in ("bar", "Bar", "BAR", "other"):
            expect("removed, " + name, told(os.stat, name), "ENOENT")


def directories():
    os.makedirs("Dir/Sub")
    put("DIR/SUB/File", "deep")
    expect("deep", read("dir/sub/FILE"), "deep")
    expect("listed", [os.listdir("dir"), os.listdir("DIR/sub")], [["Sub"], ["File"]])
    os.chdir("dIR/sUB")
    expect("not empty", told(os.rmdir, "../../DIR"), "ENOTEMPTY")
    put("file", "changed", os.O_TRUNC)
    os.chdir("../..")
    expect("changed", read("Dir/Sub/File"), "changed")
    os.rename("dir/SUB", "moved")
    expect("moved", [read("MOVED/FILE"), told(os.stat, "Dir/Sub")], ["changed", "ENOENT"])
    expect("into itself", told(os.rename, "Dir", "DIR/below"), "EINVAL")
    subprocess.run(["rm", "-r", "MOVED", "DIR"], check=True)
    expect("listed", os.listdir("."), [])


def spelt_anew():
    """By way of a third name; directly the kernel finds one file twice and does nothing."""
    put("readme", "text")
    expect("directly", told(os.rename, "readme", "README"), "ok")
    expect("listed", os.listdir("."), ["readme"])
    os.rename("readme", "third")
    os.rename("third", "README")
    expect("listed", os.listdir("."), ["README"])
    expect("read", read("readme"), "text")
    os.unlink("ReadMe")


def no_text():
    put(b"\xffA", "1")
    put(b"\xffa", "2")
    expect("by their bytes", sorted(os.listdir(b".")), [b"\xffA", b"\xffa"])
    os.unlink(b"\xffA")
    expect("left", read(b"\xffa"), "2")
    os.unlink(b"\xffa")


def contended():
    """Many threads make one name in many spellings: one of them wins each time."""
    names = ["race", "RACE", "Race", "rAcE"]
    for _ in range(50):
        won = []

        def make(name):
            if told(put, name, name, os.O_CREAT | os.O_EXCL) == "ok":
                won.append(name)

        threads = [threading.Thread(target=make, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expect("one name", os.listdir("."), won)
        os.unlink("race")


spellings()
remembered()
directories()
spelt_anew()
no_text()
contended()
expect("shown", "F" in subprocess.run(
    ["lsattr", "-d", "."], capture_output=True, text=True, check=True).stdout.split()[0], True)
put("Kept", "over a remount")
