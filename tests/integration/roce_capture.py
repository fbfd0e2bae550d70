#!/usr/bin/env python3
"""Verifies the ICRC of each RoCE v2 packet that a netdev sends or receives: roce_capture.py NETNS NETDEV PCAP

An implementation of its own, from IBTA A17.3.3, so that a mistake in ours is seen. Prints "ready", and at SIGINT
how many packets there were, of which opcodes, and how many were wrong. Exits with 1 if one was. The first packets,
with their headers and data, are also written to the file PCAP, and their opcodes printed in the line before the last.
"""
import collections
import ctypes
import os
import signal
import socket
import struct
import sys
import zlib

ETH_P_ALL = 3
ROCE = 4791
WRITTEN = 20_000  # packets


class Pcap:
    """https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-03.html"""

    def __init__(self, path):
        self.file = open(path, "wb")
        self.file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 17, 1))  # of Ethernet frames
        self.opcodes = collections.Counter()

    def add(self, frame, opcode):
        if sum(self.opcodes.values()) < WRITTEN:
            self.file.write(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)
            self.opcodes[opcode] += 1


def text_of(opcodes):
    return " ".join(f"{opcode:#04x}:{count}" for opcode, count in sorted(opcodes.items()))


def icrc(ip, length):
    """`ip`: the packet from the IP header on, `length` its headers up to UDP."""
    masked = bytearray(ip[:-4])
    if ip[0] >> 4 == 4:
        masked[1] = masked[8] = masked[10] = masked[11] = 0xff
    else:
        masked[0] |= 0x0f
        masked[1] = masked[2] = masked[3] = masked[7] = 0xff
    masked[length + 6] = masked[length + 7] = 0xff  # the UDP checksum
    masked[length + 8 + 4] = 0xff  # of the BTH
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + bytes(masked)))


def roce_of(frame):
    """The IP packet and the length of its IP header, if it is one of RoCE v2."""
    kind = struct.unpack_from("!H", frame, 12)[0]
    if kind == 0x0800 and frame[23] == 17:
        ip, length = frame[14:14 + struct.unpack_from("!H", frame, 16)[0]], 20
    elif kind == 0x86dd and frame[20] == 17:
        ip, length = frame[14:54 + struct.unpack_from("!H", frame, 18)[0]], 40
    else:
        return None
    return (ip, length) if struct.unpack_from("!H", ip, length + 2)[0] == ROCE else None


def main():
    with open(sys.argv[1], "rb") as netns:
        if ctypes.CDLL(None, use_errno=True).setns(netns.fileno(), 0) != 0:
            sys.exit(os.strerror(ctypes.get_errno()))
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUFFORCE if hasattr(socket, "SO_RCVBUFFORCE") else 33, 64 << 20)
    link.bind((sys.argv[2], 0))
    over = []
    signal.signal(signal.SIGINT, lambda *_: over.append(True))
    link.settimeout(0.2)
    print("ready", flush=True)
    opcodes, wrong = collections.Counter(), 0
    pcap = Pcap(sys.argv[3])
    while not over:
        try:
            frame = link.recv(1 << 17)
        except TimeoutError:
            continue
        found = roce_of(frame)
        if found is None:
            continue
        ip, length = found
        opcodes[ip[length + 8]] += 1
        pcap.add(frame, ip[length + 8])
        if icrc(ip, length) != ip[-4:]:
            wrong += 1
            if wrong <= 3:
                print("wrong:", ip[:80].hex(), "...", ip[-4:].hex(), len(ip), flush=True)
    pcap.file.close()
    print("written:", text_of(pcap.opcodes))
    print(f"{sum(opcodes.values())} packets, {wrong} with a wrong ICRC, opcodes", text_of(opcodes))
    sys.exit(1 if wrong else 0)


main()
