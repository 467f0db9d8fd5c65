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
#: Most pools of a transaction.
POOLS_MAX = 2
#: How often the longest pause becomes twice as long.
DOUBLINGS_MAX = 6
#: How long an abort waits for a daemon that is stuck, in seconds: it ends with the conversation too.
ABORT_TIMEOUT = 5


class Transaction:
    """A transaction that is open, on directories given by their paths or descriptors of them.

    Several directories are of one dataset or of several, in one pool or in two: then all that was
    done is in both, or nothing of it in any. It is aborted by `abort`, by an exception in its `with` block, and when the process ends, however it does. A child made by
    `os.fork` shares it, and ends it by `commit` alone. Descriptors that were opened in it answer
    `ESTALE` once it has ended.
    """

    def __init__(self, directory, *others):
        self._halves, self._directories, self._places = [], [], []
        self._process = os.getpid()
        try:
            for one in (directory, *others):
                place = _place(one)
                self._places.append((place, self._view_of(place)))
            self._directories = [None] * len(self._places)
            for at, half in enumerate(self._halves):
                where = {"directory": half.mounts[0], "also": half.mounts[1:]}
                if len(self._halves) > 1:
                    where["other"] = self._halves[1 - at].pool()
                if at > 0:
                    where["id"] = self.id
                self._ask(at, where)
        except BaseException:
            self._close()
            raise

    def _view_of(self, place):
        """Which view a directory is in: of which pool, and which one there."""
        conversation, mount = behind(place.mount)
        for at, half in enumerate(self._halves):
            if conversation.is_with(half.conversation):
                conversation.close()
                break
        else:
            at, half = len(self._halves), _Half(conversation, place.mount.owner)
            self._halves.append(half)
            if at == POOLS_MAX:
                raise place.unsuitable("it is in a third pool, and a transaction works in two")
            if half.owner != self._halves[0].owner:
                raise place.unsuitable("its pool is mounted by another user than the first one")
        if mount not in half.mounts:
            half.mounts.append(mount)
        return at, half.mounts.index(mount)

    def begin_inside(self):
        """Begins a transaction inside of this one, on the same directories.

        It commits into this one, and what it has read counts as read by this one however it ends.
        Nothing is durable before this one commits, which fails as long as any is open in it.
        """
        self.fileno()
        if len(self._halves) > 1:
            raise self._places[0][0].unsuitable(
                "it is seen by a transaction over two pools, and none begins inside of that"
            )
        inner = Transaction.__new__(Transaction)
        inner._places, inner._directories = self._places, [None] * len(self._places)
        inner._process = os.getpid()
        inner._halves = [_Half(self._halves[0].conversation.another(), self._halves[0].owner)]
        try:
            inner._ask(0, {"directory": "", "inside": self.id})
        except BaseException:
            inner._close()
            raise
        return inner

    def _ask(self, at, where):
        half = self._halves[at]
        places = [(n, p, view) for n, (p, (of, view)) in enumerate(self._places) if of == at]
        author = {"user": os.geteuid(), "command": " ".join(sys.argv) or "python"}
        order = {**where, "author": author, "descriptor": True}
        half.conversation.put({"begin": order})
        answer, roots = half.conversation.answer()
        try:
            begun = answer.get("begun") if isinstance(answer, dict) else None
            views = [] if begun is None else [begun, *begun.get("also", [])]
            # A daemon of an older version knows one dataset only.
            last = max(view for _, _, view in places)
            if not views or len(views) != len(roots) or last >= len(views):
                raise DaemonError("the daemon's answer is not one to what was asked")
            #: 32 digits of base 16, which `marram tx show` knows after the commit.
            self.id = begun["id"]
            half.devices = [view["device"] for view in views]
            for number, place, view in places:
                self._directories[number] = place.open_in(os.dup(roots[view]))
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
        still maps files of it, and `Unknown` if it may have been done, also if a signal comes while
        it is waited for. After any, it has ended.
        """
        self.fileno()
        try:
            devices = [device for half in self._halves for device in half.devices]
            mapped = [file for device in devices for file in shared_maps(device)]
            if mapped:
                raise Mapped(mapped)
            self._write_back()
            conflicts = self._conclude()
            if conflicts is not None:
                raise Refused([_conflict(row) for row in conflicts])
        finally:
            self._close()

    def _conclude(self):
        """What others have changed, if the commit was refused for that; else nothing."""
        # Of two pools the one with the smaller id decides, and the other one is asked.
        *decider, asked = sorted(self._halves, key=lambda half: half.pool()["id"])
        if decider:
            order = {"prepare": {"id": self.id, "other": decider[0].pool()}}
        else:
            order = {"commit": self.id}
        asked.conversation.put(order)
        try:
            answer, _ = asked.conversation.answer()
            done = answer["joint" if decider else "concluded"]
            if not decider:
                if not done["committed"] and done.get("unknown"):
                    raise Unknown(self.id, done["unknown"]["message"])
                return None if done["committed"] else done.get("conflicts", [])
            if done == "committed":
                return None
            if "refused" in done:
                return done["refused"]
            raise Unknown(self.id, done["in_doubt"]["message"])
        except (DaemonError, Unknown):
            raise
        except BaseException as error:
            # Also an exception of a signal: the daemon does what it was asked for all the same.
            raise Unknown(self.id, error) from error

    def abort(self):
        """Nothing that was done in it has happened."""
        if not self._directories:
            return
        try:
            # A child made by `os.fork` only lets go of its copy.
            if self._process == os.getpid():
                for half in self._halves:
                    half.conversation.put({"abort": self.id})
                    half.conversation.answer(ABORT_TIMEOUT)
        except (OSError, ValueError, DaemonError):
            # The end of the conversation aborts it too.
            pass
        finally:
            self._close()

    def _write_back(self):
        """Has the kernel hand over what was written through maps."""
        views = [view for _, view in self._places]
        for view in sorted(set(views)):
            _sync(self._directories[views.index(view)])

    def _close(self):
        for directory in self._directories:
            if directory is not None:
                os.close(directory)
        for half in self._halves:
            half.conversation.close()
        self._directories, self._halves = [], []

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
        if self._halves and self._process == os.getpid():
            self.abort()
            self._close()


class _Half:
    """A transaction in one of the pools that it works in."""

    def __init__(self, conversation, owner):
        self.conversation, self.owner = conversation, owner
        self.mounts, self.devices = [], []

    def pool(self):
        """The pool, as the other one is told of it."""
        greeting = self.conversation.greeting
        return {"id": greeting.get("pool_id", ""), "path": greeting.get("pool", "")}


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

    `directory` is one, or a list or tuple of several.
    If the commit is refused, it is called again in a new transaction after a pause, `retries` times
    at most. What it does besides happens each time.
    """
    directories = directory if isinstance(directory, (list, tuple)) else [directory]
    for attempt in range(retries + 1):
        tx = Transaction(*directories)
        try:
            result = work(tx)
        except BaseException:
            tx.abort()
            raise
        try:
            if tx._directories:
                tx.commit()
            return result
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
