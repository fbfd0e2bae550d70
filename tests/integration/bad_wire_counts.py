#!/usr/bin/env python3
"""Compares what vrdma-bad-wire did with what the vdevices and the kernel at its ends count: bad_wire_counts.py DIR

DIR has wire.log, and of each end (a, b) stats.X (`vrdmactl -o json stats`), link.X (`ip -j -s link`), and before.X and
snmp.X (/proc/net/snmp and snmp6 of the namespace, then and now). Each packet must be accounted for. Prints a line for
each direction; exits with 1 if a count is wrong."""

import json
import sys


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def udp(text):
    """The sums over IPv4 and IPv6 of the counters of UDP, without their prefix."""
    counters, names = {}, {}
    for words in (line.split() for line in text.splitlines()):
        if words[0] == "Udp:" and "Udp:" not in names:
            names["Udp:"] = words[1:]
        elif words[0] == "Udp:":
            for name, value in zip(names["Udp:"], words[1:]):
                counters[name] = counters.get(name, 0) + int(value)
        elif words[0].startswith("Udp6"):
            name = words[0].removeprefix("Udp6")
            counters[name] = counters.get(name, 0) + int(words[1])
    return counters


class End:
    def __init__(self, folder, name):
        self.counters = {row["name"]: row["value"] for row in json.loads(read(f"{folder}/stats.{name}"))}
        before, now = (udp(read(f"{folder}/{when}.{name}")) for when in ("before", "snmp"))
        self.udp = {key: now[key] - before[key] for key in now}
        self.link = json.loads(read(f"{folder}/link.{name}"))[0]["stats64"]

    def event(self, name):
        return self.counters[f"network_events_{name}"]

    def packets(self, name):
        return self.counters[f"network_packets_{name}"]


def complaints(wire, near, far, options):
    """Of the direction from `near` to `far`."""
    damaged = far.udp["InErrors"] - far.udp["RcvbufErrors"]  # a wrong checksum or length
    icrc = far.event("rx_icrc_encapsulated") + far.event("rx_malformed")
    dropped = far.udp["InErrors"] + far.udp["NoPorts"]
    equal = [
        ("the packets that entered the wire, and those that the vdevice sent", wire["received"],
         near.packets("sent") - near.link["tx"]["dropped"]),
        ("the packets that the wire forwarded, and those that the vdevice received or the kernel dropped",
         wire["forwarded"], far.packets("received") + icrc + dropped),
        ("the corrupted packets, and those that the UDP checksum or the ICRC found", wire["corrupted"],
         damaged + icrc),
        ("the packets that came in and went out", wire["received"] + wire["duplicated"],
         wire["lost"] + wire["overflowed"] + wire["forwarded"]),
        ("the packets that are left on the wire", wire["inside"], 0),
        ("the packets that the kernel had no room for", far.udp["RcvbufErrors"] + near.link["tx"]["dropped"], 0),
        ("errors of sending", near.event("tx_errors"), 0)]
    if "--right-checksum" in options:
        equal.append(("the corrupted packets, and those that the ICRC found", wire["corrupted"], icrc))
    # A mark is not counted on a notification, nor on a packet that the queue pair does not wait for. On a busy machine
    # packets are sent again also if none was lost.
    if wire["lost"] + wire["corrupted"] + wire["overflowed"] + wire["duplicated"] == 0:
        least = far.event("np_ecn_marked_roce_packets")
        most = least + far.event("rp_cnp_handled") + far.event("rx_unknown_qp") + sum(
            end.event(event) for end in (near, far) for event in ("retransmitted", "duplicate_request"))
        if not least <= wire["marked"] <= most:
            yield f"{wire['marked']} packets were marked, and the vdevice saw {least}"
    for what, one, other in equal:
        if one != other:
            yield f"{what}: {one}, {other}"
    for cause, *events in [("reordered", "out_of_sequence"), ("duplicated", "duplicate_request")]:
        if wire[cause] > 20 and not any(far.event(event) for event in events):
            yield f"{wire[cause]} packets were {cause}, and no {events} is counted"


def main():
    folder, options = sys.argv[1], sys.argv[2:]
    log = read(f"{folder}/wire.log")
    directions = json.loads(log[log.index("{"):])["directions"]
    ends = {name: End(folder, name) for name in "ab"}
    wrong = []
    for wire, near, far in zip(directions, "ab", "ba"):
        wrong += [f"{near} to {far}: {each}" for each in complaints(wire, ends[near], ends[far], options)]
        counts = ", ".join(f"{value} {name}" for name, value in wire.items() if name != "from" and value)
        names = ("rx_icrc_encapsulated", "out_of_sequence", "duplicate_request", "np_ecn_marked_roce_packets",
                 "np_cnp_sent")
        sent = ("retransmitted", "packet_seq_err", "local_ack_timeout_err", "rp_cnp_handled")
        events = [(name, ends[far].event(name)) for name in names] + [(name, ends[near].event(name)) for name in sent]
        print(f"   {near} to {far}: {counts}")
        print("      " + ", ".join(f"{name} {value}" for name, value in events if value))
    # A lost notification is one that the wire has taken, or that came when its queue pair had been destroyed.
    for near, far in ("ab", "ba"):
        told, heard = ends[far].event("np_cnp_sent"), ends[near].event("rp_cnp_handled")
        late = ends[near].event("rx_unknown_qp")
        if heard > told or (heard + late < told and not any(wire["lost"] + wire["corrupted"] + wire["overflowed"]
                                                     for wire in directions)):
            wrong.append(f"{far} sent {told} notifications of congestion, and {near} heard {heard}")
    for each in wrong:
        print("   wrong:", each)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
