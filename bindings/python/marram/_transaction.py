"""A transaction of this process."""

import ctypes
import os
import sys
import time

from ._daemon import behind
from ._directory import PATH_FLAGS, Place, shared_maps
from ._errors import Conflict, DaemonError, Refused, Mapped, Unknown

#: The pause before work is done again, in milliseconds: at least, and at most at first.
PAUSE_MILLISECONDS = (5, 20)
#: How often the longest pause becomes twice as long.
DOUBLINGS_MAX = 6


class Transaction:
    """A transaction that is open, on directories given by their paths or descriptors of them.

    Several directories are of one dataset, or of several of one pool. It is aborted by `abort`, by
    an exception in its `with` block, and when the process ends, however it does. A child made by
    `os.fork` shares it, and ends it by `commit` alone. Descriptors that were opened in it answer
    `ESTALE` once it has ended.
    """

    def __init__(self, directory, *others):
        self._conversation, self._directories = None, []
        self._process = os.getpid()
        mounts, places = [], []
        try:
            for one in (directory, *others):
                place = _place(one)
                conversation, mount = behind(place.mount)
                if self._conversation is None:
                    self._conversation = conversation
                elif not conversation.is_with(self._conversation):
                    conversation.close()
                    raise place.unsuitable("it is in another pool than the first directory")
                else:
                    conversation.close()
                if mount not in mounts:
                    mounts.append(mount)
                places.append((place, mounts.index(mount)))
        except BaseException:
            self._close()
            raise
        self._begin(places, {"directory": mounts[0], "also": mounts[1:]})

    def begin_inside(self):
        """Begins a transaction inside of this one, on the same directories.

        It commits into this one, and what it has read counts as read by this one however it ends.
        Nothing is durable before this one commits, which fails as long as any is open in it.
        """
        self.fileno()
        inner = Transaction.__new__(Transaction)
        inner._conversation, inner._directories = None, []
        inner._process = os.getpid()
        inner._conversation = self._conversation.another()
        inner._begin(self._places, {"directory": "", "inside": self.id})
        return inner

    def _begin(self, places, where):
        self._places = places
        try:
            self._ask(places, where)
        except BaseException:
            self._close()
            raise

    def _ask(self, places, where):
        author = {"user": os.geteuid(), "command": " ".join(sys.argv) or "python"}
        order = {**where, "author": author, "descriptor": True}
        self._conversation.put({"begin": order})
        answer, roots = self._conversation.answer()
        try:
            begun = answer.get("begun") if isinstance(answer, dict) else None
            views = [] if begun is None else [begun, *begun.get("also", [])]
            # A daemon of an older version knows one dataset only.
            if not views or len(views) != len(roots) or max(it for _, it in places) >= len(views):
                raise DaemonError("the daemon's answer is not one to what was asked")
            #: 32 digits of base 16, which `marram tx show` knows after the commit.
            self.id = begun["id"]
            self._devices = [view["device"] for view in views]
            for place, view in places:
                self._directories.append(place.open_in(os.dup(roots[view])))
        finally:
            for root in roots:
                os.close(root)

    def fileno(self):
        """The directory in the view: an `O_PATH` descriptor, for `dir_fd` of all calls.

        Of several directories it is the first.
        """
        return self.filenos()[0]

    def filenos(self):
        """The same of all directories, in the order in which they were named."""
        if not self._directories:
            raise ValueError("the transaction has ended")
        return list(self._directories)

    @property
    def path(self):
        """The same as a path of this process, for calls that take no `dir_fd`."""
        return f"/proc/self/fd/{self.fileno()}"

    def open(self, file, mode="r", *arguments, **options):
        """The builtin `open` below the directory."""
        at = self.fileno()

        def opener(name, flags):
            return os.open(name, flags, 0o666, dir_fd=at)

        return open(file, mode, *arguments, opener=opener, **options)

    def commit(self):
        """Has all that was done happen at once, durably, when it returns.

        Raises `Refused` if others have changed what was read or written, `Mapped` if this process
        still maps files of it, and `Unknown` if it may have been done. After any, it has ended.
        """
        self.fileno()
        try:
            mapped = [file for device in self._devices for file in shared_maps(device)]
            if mapped:
                raise Mapped(mapped)
            self._write_back()
            self._conversation.put({"commit": self.id})
            try:
                answer, _ = self._conversation.answer()
                done = answer["concluded"]
            except (OSError, ValueError, TypeError, KeyError) as error:
                raise Unknown(self.id, error) from error
            if not done["committed"]:
                raise Refused([_conflict(row) for row in done.get("conflicts", [])])
        finally:
            self._close()

    def abort(self):
        """Nothing that was done in it has happened."""
        if not self._directories:
            return
        try:
            # A child made by `os.fork` only lets go of its copy.
            if self._process == os.getpid():
                self._conversation.put({"abort": self.id})
                self._conversation.answer()
        except (OSError, ValueError, DaemonError):
            # The end of the conversation aborts it too.
            pass
        finally:
            self._close()

    def _write_back(self):
        """Has the kernel hand over what was written through maps."""
        for view in range(len(self._devices)):
            at = [place for _, place in self._places].index(view)
            _sync(self._directories[at])

    def _close(self):
        for directory in self._directories:
            os.close(directory)
        if self._conversation is not None:
            self._conversation.close()
        self._directories, self._conversation = [], None

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if not self._directories:
            return
        if kind is None:
            self.commit()
        else:
            self.abort()

    def __del__(self):
        if self._conversation is not None and self._process == os.getpid():
            self.abort()
            self._close()


def _place(directory):
    """Where a directory is that is given by its path, or by a descriptor of it."""
    if isinstance(directory, int):
        return Place(directory)
    if hasattr(directory, "fileno"):
        return Place(directory.fileno())
    opened = os.open(directory, PATH_FLAGS)
    try:
        return Place(opened)
    finally:
        os.close(opened)


def _sync(directory):
    try:
        opened = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=directory)
    except PermissionError:
        # A directory that may be entered and not be listed.
        os.sync()
        return
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(opened) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
    finally:
        os.close(opened)


def transaction(directory, *others):
    """Begins a transaction on directories: `with marram.transaction(path) as tx:`."""
    return Transaction(directory, *others)


def retry(directory, work, retries=5):
    """Calls `work(tx)` in a transaction and commits; what it returns.

    If the commit is refused, it is called again in a new transaction after a pause, `retries` times
    at most. What it does besides happens each time.
    """
    for attempt in range(retries + 1):
        tx = Transaction(directory)
        try:
            with tx:
                return work(tx)
        except Refused:
            if attempt == retries:
                raise
        time.sleep(_pause(tx.id, attempt))


def _pause(id, attempt):
    """Seconds; part of it comes from the id, which is random."""
    least, most = PAUSE_MILLISECONDS
    most <<= min(attempt, DOUBLINGS_MAX)
    return (least + int(id[:8], 16) % most) / 1000


def _conflict(row):
    exact = row.get("path_bytes")
    path = bytes.fromhex(exact) if exact else row["path"].encode()
    return Conflict(path, row["detail"])
