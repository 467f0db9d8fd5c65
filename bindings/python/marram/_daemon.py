"""The daemon behind a mount, and the conversation with it: a JSON document a line, each way."""

import array
import json
import os
import socket
import stat

from ._errors import DaemonError, Unsuitable

#: The version of what is said about transactions.
PROTOCOL = 1
#: How long a daemon may take to greet, in seconds.
GREETING_TIMEOUT = 10
#: Longest line that is read, in bytes.
LINE_BYTES_MAX = 64 << 20
#: Most sockets of a folder that are looked at.
SOCKETS_MAX = 256
#: Most datasets of a transaction, and so descriptors that are taken with one piece.
DESCRIPTORS_MAX = 8
#: Before Python 3.11 not everywhere in the module `socket`.
MSG_CMSG_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0x40000000)


class Conversation:
    """Lines each way, and descriptors that come with them."""

    def __init__(self, path):
        self._path = path
        self._read = b""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._socket.settimeout(GREETING_TIMEOUT)
            self._socket.connect(path)
            self.greeting = json.loads(self.line()[0])
            self._socket.settimeout(None)
        except BaseException:
            self._socket.close()
            raise

    def is_with(self, other):
        """Whether the same daemon is behind another one."""
        return self._path == other._path

    def another(self):
        """One more with the same daemon, or with one that has taken its place."""
        return Conversation(self._path)

    def put(self, request):
        """Sends a request; an `OSError` says that the daemon has not taken it."""
        self._socket.sendall(json.dumps(request).encode() + b"\n")

    def answer(self, timeout=None):
        """The daemon's answer, and the descriptors that come with it.

        It may take as long as it likes, or at most so many seconds: an `OSError` says that they are
        over.
        """
        self._socket.settimeout(timeout)
        line, descriptors = self.line()
        try:
            response = json.loads(line)
            if "Err" in response:
                refusal = response["Err"]
                hint = f" ({refusal['hint']})" if refusal.get("hint") else ""
                raise DaemonError(refusal["message"] + hint)
            return response["Ok"], descriptors
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise

    def line(self):
        """A line without its end, and the descriptors that came with it."""
        descriptors = array.array("i")
        while b"\n" not in self._read:
            if len(self._read) > LINE_BYTES_MAX:
                raise OSError("the daemon's line is too long")
            piece = self._piece(descriptors)
            if not piece:
                raise ConnectionResetError("the daemon went away before it answered")
            self._read += piece
        line, _, self._read = self._read.partition(b"\n")
        return line, list(descriptors)

    def _piece(self, descriptors):
        """A piece of a line. Descriptors that come with it are closed in what is run, from the
        first moment: another thread may just begin a program."""
        room = socket.CMSG_SPACE(DESCRIPTORS_MAX * descriptors.itemsize)
        piece, messages, _, _ = self._socket.recvmsg(16384, room, MSG_CMSG_CLOEXEC)
        for level, kind, data in messages:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                whole = len(data) - len(data) % descriptors.itemsize
                descriptors.frombytes(data[:whole])
        return piece

    def close(self):
        """Ends the conversation, and with it the transaction that was begun in it."""
        self._socket.close()


def behind(mount):
    """The conversation with the daemon that has made a mount, and where it has made it.

    It is root's or this user's: any other could hand out a directory that is not its own.
    """
    if mount.owner not in (0, os.geteuid()):
        raise Unsuitable(f"the file system that is mounted there is user {mount.owner}'s")
    for folder in _folders(mount.owner):
        for name in _sockets(folder):
            try:
                conversation = Conversation(os.path.join(folder, name))
            except (OSError, ValueError):
                # One that does not greet as a daemon does is as good as none.
                continue
            place = _place(conversation.greeting, mount.device)
            if place is None:
                conversation.close()
                continue
            return _checked(conversation), place
    raise Unsuitable("no daemon answers for the file system that is mounted there")


def _checked(conversation):
    theirs = conversation.greeting.get("transactions", 0)
    if theirs != PROTOCOL:
        conversation.close()
        version = conversation.greeting.get("version")
        raise DaemonError(
            f"the daemon is marram {version}, with version {theirs} of transactions in place of"
            f" {PROTOCOL}"
        )
    return conversation


def _place(greeting, device):
    # The number of one that has just ended is the next one's: the newest is it.
    for mount in reversed(greeting.get("mounts", [])):
        if mount.get("device") == device and not mount.get("has_ended"):
            return mount["directory"]
    return None


def _folders(owner):
    """Folders for sockets of a user, into which no other user but root can put anything."""
    if owner == 0:
        folders = ["/run/marram"]
    else:
        folders = [f"/run/user/{owner}/marram", f"/tmp/marram-{owner}"]
        runtime = os.environ.get("XDG_RUNTIME_DIR")
        if runtime and owner == os.geteuid():
            folders.insert(0, os.path.join(runtime, "marram"))
    return [folder for folder in folders if _is_private(folder, {owner, os.geteuid()})]


def _is_private(folder, users):
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid in users and not found.st_mode & 0o022


def _sockets(folder):
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [name for name in names if name.endswith(".sock")][:SOCKETS_MAX]
