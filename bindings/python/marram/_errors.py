"""Why there is no transaction, or no commit."""

from typing import NamedTuple


class Conflict(NamedTuple):
    """Something that others have changed and the transaction has read or written."""

    #: Where: a path from the root of the dataset, in bytes.
    path: bytes
    #: What both did.
    detail: str


class Error(Exception):
    """With any but `Unknown` nothing of the transaction is in the file system."""


class Unsuitable(Error):
    """No transaction can begin on this directory."""


class DaemonError(Error):
    """The daemon refuses what was asked, or failed at it."""


class Refused(Error):
    """The commit was refused: others have changed what the transaction has read or written."""

    def __init__(self, conflicts):
        self.conflicts = conflicts
        told = "; ".join(f"{it.path.decode(errors='replace')}: {it.detail}" for it in conflicts)
        super().__init__(f"the commit was refused, others have changed what it depends on: {told}")


class Mapped(Error):
    """The commit was refused: this process still has files of the transaction mapped."""

    def __init__(self, files):
        self.files = files
        super().__init__("the commit was refused, this process has mapped: " + "; ".join(files))


class Unknown(Error):
    """The daemon went away during the commit: `marram tx show` tells whether it was done."""

    def __init__(self, id, reason):
        self.id = id
        super().__init__(f"it is not known whether transaction {id} was committed: {reason}")
