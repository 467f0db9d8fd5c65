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
    """A transaction that is open, on a directory given by its path or a descriptor of it.

    It is aborted by `abort`, by an exception in its `with` block, and when the process ends,
    however it does. A child made by `os.fork` shares it, and ends it by `commit` alone.
    Descriptors that were opened in it answer `ESTALE` once it has ended.
    """

    def __init__(self, directory):
        self._conversation = self._directory = None
        is_open = isinstance(directory, int) or hasattr(directory, "fileno")
        if not is_open:
            opened = os.open(directory, PATH_FLAGS)
        else:
            opened = directory if isinstance(directory, int) else directory.fileno()
        try:
            place = Place(opened)
        finally:
            if not is_open:
                os.close(opened)
        self._process = os.getpid()
        self._conversation, mount = behind(place.mount)
        self._begin(place, {"directory": mount})

    def begin_inside(self):
        """Begins a transaction inside of this one, on the same directory.

        It commits into this one, and what it has read counts as read by this one however it ends.
        Nothing is durable before this one commits, which fails as long as any is open in it.
        """
        self.fileno()
        inner = Transaction.__new__(Transaction)
        inner._conversation = inner._directory = None
        inner._process = os.getpid()
        inner._conversation = self._conversation.another()
        inner._begin(self._place, {"directory": "", "inside": self.id})
        return inner

    def _begin(self, place, where):
        self._place = place
        try:
            self._ask(place, where)
        except BaseException:
            self._close()
            raise

    def _ask(self, place, where):
        author = {"user": os.geteuid(), "command": " ".join(sys.argv) or "python"}
        order = {**where, "author": author, "descriptor": True}
        self._conversation.put({"begin": order})
        answer, descriptors = self._conversation.answer()
        begun = answer.get("begun") if isinstance(answer, dict) else None
        if begun is None or not descriptors:
            raise DaemonError("the daemon's answer is not one to what was asked")
        #: 32 digits of base 16, which `marram tx show` knows after the commit.
        self.id = begun["id"]
        self._device = begun["device"]
        self._directory = place.open_in(descriptors[0])

    def fileno(self):
        """The directory in the view: an `O_PATH` descriptor, for `dir_fd` of all calls."""
        if self._directory is None:
            raise ValueError("the transaction has ended")
        return self._directory

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
            mapped = shared_maps(self._device)
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
        if self._directory is None:
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
        try:
            opened = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._directory)
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

    def _close(self):
        if self._directory is not None:
            os.close(self._directory)
        if self._conversation is not None:
            self._conversation.close()
        self._directory = self._conversation = None

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self._directory is None:
            return
        if kind is None:
            self.commit()
        else:
            self.abort()

    def __del__(self):
        if self._conversation is not None and self._process == os.getpid():
            self.abort()
            self._close()


def transaction(directory):
    """Begins a transaction on a directory: `with marram.transaction(path) as tx:`."""
    return Transaction(directory)


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
