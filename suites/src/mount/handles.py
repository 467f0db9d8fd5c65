"""File handles, as NFS servers use them.

usage: handles.py take ROOT FILE...       prints the handle of each
       handles.py open ROOT FILE=HANDLE... each handle opens FILE; its content is its name
       handles.py stale ROOT HANDLE...     each handle is refused with ESTALE
"""

import ctypes
import errno
import os
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)
HANDLE_BYTES_MAX = 128
AT_FDCWD = -100


def checked(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def take(path):
    """The type and bytes of a handle, in hexadecimal."""
    handle = ctypes.create_string_buffer(struct.pack("Ii", HANDLE_BYTES_MAX, 0), 8 + HANDLE_BYTES_MAX)
    mount = ctypes.c_int()
    name = os.fsencode(path)
    checked(libc.name_to_handle_at(AT_FDCWD, name, handle, ctypes.byref(mount), 0))
    length, _ = struct.unpack_from("Ii", handle)
    return handle.raw[: 8 + length].hex()


def open_handle(root, text):
    handle = ctypes.create_string_buffer(bytes.fromhex(text))
    place = os.open(root, os.O_RDONLY)
    try:
        return checked(libc.open_by_handle_at(place, handle, os.O_RDONLY))
    finally:
        os.close(place)


command, root, *words = sys.argv[1:]
for word in words:
    if command == "take":
        print(f"{word}={take(os.path.join(root, word))}")
    elif command == "open":
        name, handle = word.split("=")
        file = open_handle(root, handle)
        content = os.read(file, 4096).decode()
        os.close(file)
        if content != name:
            sys.exit(f"the handle of {name} opens {content!r}")
    else:
        try:
            open_handle(root, word.split("=")[1])
            sys.exit(f"the handle {word} opens something although its file is gone")
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
