#!/usr/bin/env python3
"""session_file.py COMMAND FILE [...]: reads and forges the anchors of a session (vrdmad/records/anchor_file.h), as a
worker can that was taken over.

    pid FILE            the process that has the session
    epoch FILE [VALUE]  the epoch in which it was served last; with VALUE, writes that
    fill FILE KIND      fills the file with as many records of a kind as fit into 1 MiB
"""
import os
import struct
import sys

RECORD = struct.Struct("=IHHII")  # size of the data, kind, erases, number, tag
LOG_AT, FIRST, LARGEST = 16, 1024, 1 << 20
PROCESS_AT, EPOCH_AT = 80, 212  # in the anchor, whose kind and number are 0


class SessionFile:
    def __init__(self, path):
        self.fd = os.open(path, os.O_RDWR)
        log, = struct.unpack("=Q", os.pread(self.fd, 8, LOG_AT))
        place, self.end = (log >> 32) * 8, (log & 0xffffffff) * 8
        self.anchor = None
        while place < self.end:
            size, kind, erases, number, _ = RECORD.unpack(os.pread(self.fd, RECORD.size, place))
            if (kind, number, erases) == (0, 0, 0):
                self.anchor = place + RECORD.size
            place += RECORD.size + (size + 7) // 8 * 8

    def number(self, where, value=None):
        if value is not None:
            os.pwrite(self.fd, struct.pack("=I", value), self.anchor + where)
        return struct.unpack("=I", os.pread(self.fd, 4, self.anchor + where))[0]

    def fill(self, kind):
        count = (LARGEST - self.end) // RECORD.size
        os.ftruncate(self.fd, LARGEST)
        os.pwrite(self.fd, b"".join(RECORD.pack(0, kind, 0, i + 1, 0) for i in range(count)), self.end)
        end = self.end + count * RECORD.size
        log, = struct.unpack("=Q", os.pread(self.fd, 8, LOG_AT))
        os.pwrite(self.fd, struct.pack("=Q", log >> 32 << 32 | end // 8), LOG_AT)


def main():
    command, path, *words = sys.argv[1:]
    file = SessionFile(path)
    if command == "pid":
        print(file.number(PROCESS_AT))
    elif command == "epoch":
        print(file.number(EPOCH_AT, int(words[0], 0) if words else None))
    elif command == "fill":
        file.fill(int(words[0]))
    else:
        sys.exit(__doc__)


main()
