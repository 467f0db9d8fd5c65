"""A directory of a mount, and the same directory in the view of a transaction.

Nothing here asks for attributes in the view: a transaction that has asked for those of a directory
depends on every name in it.
"""

import os
import re

from ._errors import Unsuitable

PATH_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
TYPES = (b"fuse.marram", b"fuseblk.marram")


class Mount:
    """A mount of the kernel's list."""

    def __init__(self, line):
        before, _, after = line.partition(b" - ")
        words = before.split(b" ")
        self.number = words[0]
        #: `MAJOR:MINOR`.
        self.device = words[2].decode()
        self.root = _unescape(words[3])
        self.directory = _unescape(words[4])
        kind, _, rest = after.partition(b" ")
        self.is_marram = kind in TYPES
        # The name of the source comes first, and may be anything.
        options = rest.rpartition(b" ")[2]
        owner = re.search(rb"(?:^|,)user_id=(\d+)", options)
        self.owner = int(owner.group(1)) if owner else os.geteuid()


class Place:
    """Where a descriptor of a directory leads."""

    def __init__(self, descriptor):
        self.path = os.readlink(os.fsencode(f"/proc/self/fd/{descriptor}"))
        info = _info(descriptor)
        self._ino = info.get(b"ino")
        self.mount = self._mount(info.get(b"mnt_id"))
        inner = os.path.relpath(self.path, self.mount.directory)
        if inner.split(b"/", 1)[0] == b"..":
            raise self.unsuitable("its path has just changed")
        inner = os.path.normpath(os.path.join(self.mount.root, inner))
        self._components = [part for part in inner.split(b"/") if part not in (b"", b".")]

    def _mount(self, number):
        with open("/proc/self/mountinfo", "rb") as table:
            for line in table:
                mount = Mount(line.rstrip(b"\n"))
                if mount.number != number:
                    continue
                if not mount.is_marram:
                    raise self.unsuitable("it is not inside a mounted Marram file system")
                return mount
        raise self.unsuitable(
            "it is in no mount that this process sees, or in another transaction"
        )

    def open_in(self, root):
        """Opens the same directory below the root of a view, which is closed."""
        at = root
        for part in self._components:
            try:
                below = os.open(part, PATH_FLAGS | os.O_NOFOLLOW, dir_fd=at)
            except (FileNotFoundError, NotADirectoryError):
                raise self._missing() from None
            finally:
                os.close(at)
            at = below
        if self._components and _info(at).get(b"ino") != self._ino:
            os.close(at)
            raise self._missing()
        return at

    def _missing(self):
        return self.unsuitable(
            "it is no directory of the dataset that is mounted there: it was removed or renamed,"
            " or lies below .marram"
        )

    def unsuitable(self, reason):
        """The error with the path in it."""
        place = os.fsdecode(self.path)
        return Unsuitable(f"no transaction can begin on {place}: {reason}")


def shared_maps(device):
    """The files of a device `MAJOR:MINOR` that this process has mapped so that writes reach them."""
    major, minor = (int(number) for number in device.split(":"))
    files = set()
    with open("/proc/self/maps", "rb") as maps:
        for line in maps:
            words = line.rstrip(b"\n").split(b" ", 5)
            found = tuple(int(number, 16) for number in words[3].split(b":"))
            if words[1][3:4] == b"s" and found == (major, minor):
                files.add(os.fsdecode(words[5].lstrip()))
    return sorted(files)


def _info(descriptor):
    """What the kernel says of a descriptor: its mount, and its inode, without asking anybody."""
    with open(f"/proc/self/fdinfo/{descriptor}", "rb") as info:
        pairs = (line.partition(b":") for line in info)
        return {name: value.strip() for name, _, value in pairs}


def _unescape(field):
    return re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found.group(1), 8)]), field)
