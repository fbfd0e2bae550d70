#!/usr/bin/env python3
"""A FUSE file system that reads requests of one kind and never answers them: fuse_silent.py PATH KIND

PATH is a file or a directory, and so is the root of the file system, which is mounted on it. A file looks like a
library. KIND is lookup, getattr, open, read or flush. Who waits for an answer cannot be killed before this program.
"""
import ctypes
import os
import stat
import struct
import sys

LOOKUP, FORGET, GETATTR, OPEN, READ, RELEASE, FLUSH, INIT, INTERRUPT, BATCH_FORGET = 1, 2, 3, 14, 15, 18, 25, 26, 36, 42
KINDS = {"lookup": LOOKUP, "getattr": GETATTR, "open": OPEN, "read": READ, "flush": FLUSH}
MAJOR, MINOR, DIRECT_IO, ENOSYS = 7, 26, 1, 38
HEADER = struct.Struct("=IIQQIIII")
SIZE = 1 << 20


def attributes(mode):
    """struct fuse_attr_out, which expires at once."""
    return struct.pack("=QII6Q10I", 0, 0, 0, 1, SIZE, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(opcode, mode):
    """The errno and the body."""
    if opcode == INIT:
        return 0, struct.pack("=4I2H2I2H8I", MAJOR, MINOR, 0, 0, 0, 0, 4096, 0, 0, 0, *[0] * 8)
    if opcode == GETATTR:
        return 0, attributes(mode)
    if opcode == OPEN:
        return 0, struct.pack("=QII", 0, DIRECT_IO, 0)
    if opcode == READ:
        return 0, b"\x7fELF" + bytes(4092)
    return (0 if opcode in (RELEASE, FLUSH) else ENOSYS), b""


def main():
    path, silent = sys.argv[1], KINDS[sys.argv[2]]
    mode = stat.S_IFDIR | 0o755 if os.path.isdir(path) else stat.S_IFREG | 0o644
    fuse = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fuse},rootmode={mode:o},user_id=0,group_id=0,allow_other"
    if ctypes.CDLL(None, use_errno=True).mount(b"silent", path.encode(), b"fuse", 6, options.encode()) != 0:
        sys.exit(f"mount {path}: {os.strerror(ctypes.get_errno())}")
    while True:
        request = os.read(fuse, 1 << 18)
        _, opcode, unique, *_ = HEADER.unpack_from(request)
        if opcode in (silent, FORGET, INTERRUPT, BATCH_FORGET):
            continue
        error, body = answer(opcode, mode)
        os.write(fuse, struct.pack("=IiQ", 16 + len(body), -error, unique) + body)


main()
