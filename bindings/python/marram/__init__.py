"""Transactions in mounted Marram file systems, as ordinary files.

    import marram, os

    with marram.transaction("/srv/data") as tx:
        os.rename("next", "current", src_dir_fd=tx.fileno(), dst_dir_fd=tx.fileno())
        with tx.open("log", "a") as log:
            log.write("moved\n")

The end of the block commits, an exception aborts. What is done below the descriptor is there at
once or not at all; `Refused` says what others have changed of it. The page
docs/transactions-library.md has the rules.
"""

from ._errors import (
    Conflict,
    DaemonError,
    Error,
    Mapped,
    Refused,
    Unknown,
    Unsuitable,
)
from ._transaction import Transaction, retry, transaction

__all__ = [
    "Conflict",
    "DaemonError",
    "Error",
    "Mapped",
    "Refused",
    "Transaction",
    "Unknown",
    "Unsuitable",
    "retry",
    "transaction",
]
