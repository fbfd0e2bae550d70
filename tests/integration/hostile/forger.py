#!/usr/bin/env python3
"""Packets of RoCE v2 in the name of others, for wire.sh.

    forger.py far|near SECONDS QPN,... PORT...     root, on the ports of a bridge
    forger.py socket SECONDS QPN,... ADDRESS [SOURCE]   any user: a plain UDP socket

far: sees the packets that pass the ports, and sends each host what its peer could send, with the right addresses, queue
pairs and ICRC, but sequence numbers far from those that are in use: as a stranger does who knows the numbers of the queue
pairs. near: the same with the sequence numbers that are in use, of these queue pairs alone. socket: floods with congestion
notifications, segments (UDP_SEGMENT) of any length, empty, largest and fragmented datagrams, none of which has a sequence
number that is in use.

Prints "begins", and at the end as JSON how many of each kind were sent."""

import collections
import json
import random
import select
import socket
import struct
import sys
import time
import zlib

ROCE = 4791
SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY, WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_ONLY = 0, 1, 2, 4, 6, 7, 8, 10
READ, READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY, ACK, ATOMIC_ACK, SWAP, ADD = 12, 13, 14, 15, 16, 17, 18, 19, 20
UC, UD, CNP = 0x20, 0x60, 0x81
ANSWERS = range(READ_FIRST, ATOMIC_ACK + 1)
NAKS = {"sequence": 0x60, "invalid": 0x61, "access": 0x62, "operational": 0x63}
FAR = 1 << 21  # further than any window, and than the sequence numbers of a turn
ALL = 3  # ETH_P_ALL
GSO = 103  # UDP_SEGMENT


def icrc(source, address, port, body, ident=0):
    """Of an IPv4 packet that may not be fragmented."""
    length = 28 + len(body) + 4
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0xff, length & 0xffff, ident, 0x4000, 0xff, 17, 0xffff, source, address)
    udp = struct.pack("!HHHH", port, ROCE, length - 20 & 0xffff, 0xffff)
    masked = bytearray(body)
    masked[4] = 0xff
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + ip + udp + bytes(masked)))


def bth(opcode, qpn, psn, ask=False, pkey=0xffff):
    return struct.pack("!BBHII", opcode, 0, pkey, qpn, ask << 31 | psn & 0xffffff)


def aeth(syndrome):
    return struct.pack("!I", syndrome << 24 | 7)


def reth(address, key, length):
    return struct.pack("!QII", address, key, length)


def checksum(header):
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xffff) + (total >> 16)
    return ~((total & 0xffff) + (total >> 16)) & 0xffff


class Flow:
    """What comes to a queue pair."""

    def __init__(self):
        self.macs = self.source = self.address = self.port = None
        self.requests = self.answers = None  # the last sequence numbers of either


class Wire:
    def __init__(self, ports, random_numbers):
        self.random, self.sent = random_numbers, collections.Counter()
        self.flows = collections.defaultdict(Flow)
        self.sockets, self.out = [], {}
        for port in ports:
            one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            one.bind((port, ALL))  # the bridge takes packets before sockets of one protocol see them
            one.setblocking(False)
            self.sockets.append(one)

    def look(self, seconds):
        """Learns who talks to whom, and with which numbers, as far as packets are there."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for one in select.select(self.sockets, [], [], left)[0]:
                try:
                    while time.monotonic() < end:
                        packet, (_, _, kind, _, _) = one.recvfrom(128)
                        if kind != socket.PACKET_OUTGOING:
                            self.learn(packet, one)
                except BlockingIOError:
                    pass

    def learn(self, packet, came_by):
        if len(packet) < 54 or packet[12:14] != b"\x08\x00" or packet[23] != 17 or packet[36:38] != struct.pack("!H", ROCE):
            return
        opcode, _, _, qpn, psn = struct.unpack("!BBHII", packet[42:54])
        if opcode >> 5 or qpn & 0xffffff < 2:
            return
        flow = self.flows[packet[30:34], qpn & 0xffffff]
        flow.macs, flow.source, flow.address, flow.port = packet[:12], packet[26:30], packet[30:34], packet[34:36]
        flow.way = self.sockets[1 - self.sockets.index(came_by)]  # a bridge of two ports
        if opcode in ANSWERS:
            flow.answers = psn & 0xffffff
        else:
            flow.requests = psn & 0xffffff

    def datagram(self, flow, body, ident=0):
        port = struct.unpack("!H", flow.port)[0]
        return struct.pack("!HHHH", port, ROCE, 8 + len(body) + 4, 0) + body + icrc(flow.source, flow.address, port, body, ident)

    def frame(self, flow, payload, ident=0, fragment=0x4000):
        ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0x02, 20 + len(payload), ident, fragment, 64, 17, 0, flow.source, flow.address)
        return flow.macs + b"\x08\x00" + ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:] + payload

    def put(self, kind, flow, frame):
        for _ in range(3):
            try:
                flow.way.send(frame)
                self.sent[kind] += 1
                return
            except (BlockingIOError, OSError):
                time.sleep(0.0005)

    def pieces(self, flow, datagram):
        """Fragments of a datagram: some in order, some twice, some overlap, some have no end."""
        ident, place, step = self.random.getrandbits(16), 0, 8 * self.random.randrange(1, 60)
        whole = []
        while place < len(datagram):
            more = 0x2000 if place + step < len(datagram) else 0
            whole.append(self.frame(flow, datagram[place:place + step], ident, more | place // 8))
            place += step
        how = self.random.randrange(4)
        if how == 1:
            self.random.shuffle(whole)
        elif how == 2 and len(whole) > 1:
            whole.insert(1, self.frame(flow, datagram[:step], ident, 0x2000 | 1))
        elif how == 3:
            whole.pop()
        return whole

    def bodies(self, qpn, answer, request):
        """One of each kind: `answer` and `request` give sequence numbers."""
        junk = self.random.randbytes
        size = 4 * self.random.randrange(0, 1100)
        yield "cnp", bth(CNP, qpn, 0) + bytes(16)
        yield "ack", bth(ACK, qpn, answer()) + aeth(0x1f)
        yield "rnr", bth(ACK, qpn, answer()) + aeth(0x20 | self.random.randrange(32))
        for name, syndrome in NAKS.items():
            yield "nak_" + name, bth(ACK, qpn, answer()) + aeth(syndrome)
        yield "nak_reserved", bth(ACK, qpn, answer()) + aeth(self.random.choice([0x40, 0x65, 0x7f, 0xff]))
        for opcode in (READ_FIRST, READ_LAST, READ_ONLY):
            yield "read_answer", bth(opcode, qpn, answer()) + aeth(0x1f) + junk(size)
        yield "read_answer", bth(READ_MIDDLE, qpn, answer()) + junk(size)
        yield "atomic_answer", bth(ATOMIC_ACK, qpn, answer()) + aeth(0x1f) + junk(8)
        for opcode in (SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY):
            yield "send", bth(opcode, qpn, request(), True) + junk(size)
        for opcode in (WRITE_FIRST, WRITE_ONLY):
            yield "write", bth(opcode, qpn, request(), True) + reth(1 << 20, self.random.getrandbits(32), size) + junk(size)
        for opcode in (WRITE_MIDDLE, WRITE_LAST):
            yield "write", bth(opcode, qpn, request(), True) + junk(size)
        yield "read", bth(READ, qpn, request()) + reth(1 << 20, self.random.getrandbits(32), 1 << 31)
        for opcode in (SWAP, ADD):
            yield "atomic", bth(opcode, qpn, request()) + struct.pack("!QIQQ", 1 << 20, self.random.getrandbits(32), 1, 0)

    def far(self, seconds, qpns):
        end = time.monotonic() + seconds
        distant = lambda psn: (psn or 0) + self.random.randrange(FAR, (1 << 24) - FAR)
        while time.monotonic() < end:
            self.look(0.05)
            flows = [(qpn, flow) for (_, qpn), flow in self.flows.items()
                     if qpn in qpns and None not in (flow.requests, flow.answers)]
            for _ in range(12):
                for qpn, flow in flows:
                    for kind, body in self.bodies(qpn, lambda: distant(flow.answers), lambda: distant(flow.requests)):
                        datagram = self.datagram(flow, body)
                        if self.random.randrange(16) == 0:
                            for frame in self.pieces(flow, datagram):
                                self.put("fragment", flow, frame)
                        elif len(datagram) < 4180:
                            self.put(kind, flow, self.frame(flow, datagram))

    def near(self, seconds, qpns):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for (_, qpn), flow in list(self.flows.items()):
                if qpn not in qpns or None in (flow.requests, flow.answers):
                    continue
                close = lambda psn: psn + self.random.randrange(-40, 300)
                kinds = list(self.bodies(qpn, lambda: close(flow.answers), lambda: close(flow.requests)))
                # One of them may end the connection, so that no later one is heard.
                self.random.shuffle(kinds)
                for kind, body in kinds[:4]:
                    datagram = self.datagram(flow, body)
                    if len(datagram) < 4180:
                        self.put(kind, flow, self.frame(flow, datagram))
            self.look(0.02)


class Plain:
    def __init__(self, address, source, qpns, random_numbers):
        self.random, self.qpns, self.sent = random_numbers, qpns, collections.Counter()
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        if source:
            self.socket.bind((source, 0))
        self.socket.setsockopt(socket.IPPROTO_IP, 10, 0)  # IP_MTU_DISCOVER: fragments are allowed
        self.socket.connect((address, ROCE))
        name, self.port = self.socket.getsockname()
        self.source, self.address = socket.inet_aton(name), socket.inet_aton(address)

    def whole(self, body, ident=0):
        return body + icrc(self.source, self.address, self.port, body, ident)

    def packets(self, index):
        """Of one length each, without a sequence number that counts."""
        qpn = self.random.choice(self.qpns)
        junk = 4 * self.random.randrange(0, 30)
        return self.random.choice([
            lambda: self.whole(bth(CNP, qpn, 0) + bytes(16), index),
            lambda: self.whole(bth(UC + SEND_ONLY, qpn, 1) + bytes(junk), index),
            lambda: self.whole(bth(UD + SEND_ONLY, qpn, 1) + struct.pack("!II", 1, 5) + bytes(junk), index),
            lambda: self.whole(bth(SEND_ONLY, qpn, 1, True, 0x1234) + bytes(junk), index),
            lambda: self.whole(bth(0x1f, qpn, 1) + bytes(junk), index),
            lambda: self.random.randbytes(28 + junk)])

    def send(self, kind, datagram, segment=0):
        more = [(socket.IPPROTO_UDP, GSO, struct.pack("=H", segment))] if segment else []
        try:
            self.socket.sendmsg([datagram], more)
            self.sent[kind] += 1
        except BlockingIOError:
            pass
        except OSError:  # EMSGSIZE, EINVAL: the kernel takes no such segments
            self.sent["untaken"] += 1

    def flood(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in range(20):
                self.send("empty", b"")
                self.send("short", self.random.randbytes(self.random.randrange(1, 16)))
                self.send("largest", self.whole(bth(SEND_ONLY, self.random.choice(self.qpns), 1, False, 0x1234) + bytes(65488)))
                size = self.random.choice([1, 3, 4, 7, 8, 12, 15, 16, 17, 28, 32, 999])
                self.send("torn", self.random.randbytes(min(size * 60 + self.random.randrange(size), 65000)), size)
                one = self.packets(0)()
                self.send("single", one)
                many = [one := self.whole(bth(CNP, self.random.choice(self.qpns), 0) + bytes(16), i) for i in range(60)]
                self.send("segments", b"".join(many), len(one))
                first = self.packets(0)()
                mixed = [first] + [self.random.randbytes(len(first)) for _ in range(20)]
                self.send("mixed", b"".join(mixed)[:-5], len(first))


def main():
    how, seconds, qpns, *words = sys.argv[1:]
    numbers = random.Random(1)
    qpns = [int(one) for one in qpns.split(",")]
    attacker = Plain(words[0], (words + [None])[1], qpns, numbers) if how == "socket" else Wire(words, numbers)
    if how != "socket":
        attacker.look(1)
    print("begins", flush=True)
    if how == "socket":
        attacker.flood(float(seconds))
    else:
        getattr(attacker, how)(float(seconds), qpns)
    print(json.dumps(attacker.sent))


main()
