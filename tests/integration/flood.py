#!/usr/bin/env python3
"""Floods UDP port 4791 of an address with packets that no queue pair may see: flood.py ADDRESS QPN

QPN is that of a queue pair which exists there and receives datagrams. Until SIGTERM, in turns: garbage of all lengths,
packets with a wrong ICRC, well-formed packets to queue pairs that do not exist, and for QPN packets of another service
or with a wrong Q_Key; and requests of connections (MADs) to services that nobody offers. At the end prints as JSON how
many of each were sent."""

import collections
import json
import random
import signal
import socket
import struct
import sys
import zlib

ROCE = 4791
RC_WRITE_ONLY, RC_SEND_ONLY, UC_SEND_ONLY, UD_SEND_ONLY, CNP = 0x0a, 0x04, 0x24, 0x64, 0x81
GSI, GSI_QKEY = 1, 0x80010000
EACH = 50  # packets of a kind in a turn


def icrc(source, address, port, body):
    """Of an IPv4 packet without a fragment and with identification 0."""
    length = 28 + len(body) + 4
    ip = bytearray(struct.pack("!BBHHHBBH4s4s", 0x45, 0xff, length, 0, 0x4000, 0xff, 17, 0xffff,
                               socket.inet_aton(source), socket.inet_aton(address)))
    udp = struct.pack("!HHHH", port, ROCE, length - 20, 0xffff)
    masked = bytearray(body)
    masked[4] = 0xff
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + bytes(ip) + udp + bytes(masked)))


def bth(opcode, qpn, psn):
    return struct.pack("!BBHII", opcode, 0, 0xffff, qpn, 1 << 31 | psn)


class Flood:
    def __init__(self, address, qpn):
        self.random, self.qpn, self.address = random.Random(1), qpn, address
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect((address, ROCE))
        self.source, self.port = self.socket.getsockname()
        self.sent = collections.Counter()

    def whole(self, body):
        return body + icrc(self.source, self.address, self.port, body)

    def unknown(self):
        return self.random.choice([qpn for qpn in range(2, 20) if qpn != self.qpn])

    def payload(self):
        return self.random.randbytes(4 * self.random.randrange(1, 200))

    def packet(self, kind):
        psn = self.random.randrange(1 << 24)
        if kind == "garbage":  # also shorter than any header
            return self.random.randbytes(self.random.randrange(1, 1400))
        if kind == "icrc":
            body = bth(RC_SEND_ONLY, self.unknown(), psn) + self.payload()
            return body + bytes(byte ^ 0xa5 for byte in icrc(self.source, self.address, self.port, body))
        if kind == "unknown_rc":
            payload = self.payload()
            return self.whole(bth(RC_WRITE_ONLY, self.unknown(), psn) + struct.pack("!QII", 4096, 1, len(payload)) + payload)
        if kind == "unknown_uc":
            return self.whole(bth(UC_SEND_ONLY, self.unknown(), psn) + self.payload())
        if kind == "unknown_ud":
            return self.whole(bth(UD_SEND_ONLY, self.unknown(), psn) + struct.pack("!II", 0x1234, 5) + self.payload())
        if kind == "cnp":
            return self.whole(bth(CNP, self.unknown(), 0) + bytes(16))
        if kind == "service":
            return self.whole(bth(RC_SEND_ONLY, self.qpn, psn) + self.payload())
        if kind == "qkey":
            return self.whole(bth(UD_SEND_ONLY, self.qpn, psn) + struct.pack("!II", 0x4321, 5) + self.payload())
        # A REQ (IBTA 12.6.5) with a random id and service.
        mad = struct.pack("!BBBBHHQHHI", 1, 7, 2, 3, 0, 0, self.random.getrandbits(64), 0x10, 0, 0)
        mad += struct.pack("!IIQQ", self.random.getrandbits(32), 0, 0x1_0000_0000 | self.random.getrandbits(16), 7)
        return self.whole(bth(UD_SEND_ONLY, GSI, psn) + struct.pack("!II", GSI_QKEY, GSI) + mad.ljust(256, b"\0"))

    def turn(self):
        for kind in ("garbage", "icrc", "unknown_rc", "unknown_uc", "unknown_ud", "cnp", "service", "qkey", "mad"):
            for packet in [self.packet(kind) for _ in range(EACH)]:
                for _ in range(20):
                    try:
                        self.socket.send(packet)
                        # Those that are shorter than a BTH go to the socket of queue pair 1.
                        self.sent["short" if len(packet) < 8 else kind] += 1
                    except ConnectionRefusedError:  # an ICMP message: a vdevice must not cause one
                        self.sent["refused"] += 1


def main():
    over = []
    signal.signal(signal.SIGTERM, lambda *_: over.append(True))
    flood = Flood(sys.argv[1], int(sys.argv[2]))
    print("floods", flush=True)
    while not over:
        flood.turn()
    print(json.dumps(flood.sent))


main()
