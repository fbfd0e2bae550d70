"""What is measured. `--only` takes the keys, also with * and ?.

A Metric is ours, some peers, and goals for their ratio or (no peer) for ours. A Point is one size of
the plots: several probes, ours named "vrdma ...". A Growth is time and memory over a count. Neighbours
is a victim's times beside attacks. Gaps are how long WRITEs stop at restarts, Starts how long workers
take to start. Containers are two containers that communicate in several ways. Operators is what their
work costs, and what tenants notice of it.
"""

from dataclasses import dataclass, field
from typing import Callable

import containers
import neighbours
import network
import probes as p


@dataclass
class Metric:
    key: str
    title: str
    unit: str
    ours: Callable
    peers: dict = field(default_factory=dict)  # name -> probe
    goals: dict = field(default_factory=dict)  # name of a peer, or "" for ours itself -> (op, value)


@dataclass
class Point:
    key: str
    plot: str  # "latency" or "bandwidth"
    size: int
    probes: dict


@dataclass
class Growth:
    key: str
    what: str  # as bench_scale has it
    counts: list
    goals: list = field(default_factory=list)  # (title, unit, column of the last row, (op, value))


@dataclass
class Neighbours:
    key: str
    attacks: list  # names of neighbours.ATTACKS
    seconds: float  # for each of a victim's two kinds of times


@dataclass
class Gaps:
    key: str
    sessions: list  # numbers of sessions
    kills: int  # of each process


@dataclass
class Starts:
    key: str
    count: int


@dataclass
class Operators:
    key: str
    tenants: int
    each: int  # vdevices of a tenant
    sends: int
    seconds: float  # of a page, and of opening devices


@dataclass
class Containers:
    key: str
    tests: list  # of containers.Test


SIZES = [2, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576]


def metrics(quick):
    n = 100 if quick else 1  # so many times fewer iterations
    seconds = 0.01 if quick else 0.1
    deep = ["-t", 512]
    deep_send = deep + ["-r", 512]
    average, tries = "average", 1 if quick else 3

    def latencies(key, title, verb, peers, goals):
        """Peers: name -> function of iterations and column."""
        yield Metric(key, f"2 B {title}, half round trip", "us",
                     p.perftest_lat(verb, 2, 300000 // n),
                     {name: probe(300000 // n, "typical") for name, probe in peers.items()}, goals)
        yield Metric(key + "_avg", f"2 B {title}, half round trip, average", "us",
                     p.undisturbed(tries, p.perftest_lat(verb, 2, 20000, column=average)),
                     {name: p.undisturbed(tries, probe(20000, average))
                      for name, probe in peers.items()}, goals)

    def bandwidth(key, title, size, iterations):
        return Metric(key, f"write bandwidth, {title}", "MiB/s",
                      p.perftest_bw("write", size, iterations // n),
                      {"memcpy": p.copy(size, iterations // n),
                       "UCX put_bw": p.ucx_bw("put_bw", size, iterations // n)},
                      {"memcpy": (">=", 0.95), "UCX put_bw": (">=", 1.0)})

    def registration(key, title, size):
        yield Metric(f"register_{key}", f"register {title} of memory", "us",
                     p.micro(f"register_new/{size}", seconds),
                     {"memcpy": p.micro(f"copy_warm/{size}", seconds),
                      "memcpy into new memory": p.micro(f"copy_new/{size}", seconds)},
                     {"memcpy": ("<=", 3)})
        yield Metric(f"register_{key}_again", f"register the same {title} again", "us",
                     p.micro(f"register_again/{size}", seconds), {}, {"": ("<=", 20)})
        yield Metric(f"register_{key}_held", f"register {title} that is registered", "us",
                     p.micro(f"register_held/{size}", seconds), {}, {"": ("<=", 20)})

    def threads(key, title, unit, goal, probe):
        """Ours, and beside it what a userfaultfd would give, and what memory that is reached gives."""
        return Metric(key, title, unit, probe("direct"),
                      {"with userfaultfd(2)": probe("guarded"),
                       "memory reached": p.reached(probe("direct"))},
                      {"with userfaultfd(2)": goal})

    def polling(key, title, case):
        return Metric(key, f"{title}, 1,000 QPs", "ns", p.micro(f"{case}/1000", seconds, unit=1),
                      {"one QP": p.micro(f"{case}/1", seconds, unit=1)}, {"one QP": ("<=", 1.3)})

    return [
        *latencies("write_lat", "write", "write",
                   {"UCX put_lat": lambda i, column: p.ucx_lat("put_lat", 2, i, column),
                    "cache-line ping-pong": p.cache_line},
                   {"UCX put_lat": ("<=", 1.0), "cache-line ping-pong": ("<=", 1.2)}),
        *latencies("send_lat", "send", "send",
                   # 8 bytes are the least it takes
                   {"UCX am_lat": lambda i, column: p.ucx_lat("am_lat", 8, i, column),
                    "UCX tag_lat": lambda i, column: p.ucx_lat("tag_lat", 2, i, column)},
                   {"UCX am_lat": ("<=", 1.0)}),
        Metric("write_rate", "8 B writes", "M/s",
               p.perftest_bw("write", 8, 3000000 // n, options=deep, rate=True),
               {"UCX put_bw": p.ucx_rate("put_bw", 8, 3000000 // n)}, {"": (">=", 30)}),
        Metric("send_rate", "8 B sends", "M/s",
               p.perftest_bw("send", 8, 2000000 // n, options=deep_send, rate=True),
               {"UCX am_bw": p.ucx_rate("am_bw", 8, 2000000 // n)}, {"": (">=", 12)}),
        Metric("send_stall", "8 B sends, the receiver stopped for 10 ms in each 100", "M/s",
               p.perftest_bw("send", 8, 3000000 // n, options=deep_send, rate=True,
                             disturb=p.stops),
               {"undisturbed": p.perftest_bw("send", 8, 3000000 // n, options=deep_send,
                                             rate=True)}, {"undisturbed": (">=", 0.8)}),
        bandwidth("write_bw_64k", "64 KiB", 65536, 50000),
        bandwidth("write_bw_1m", "1 MiB", 1048576, 3000),
        Metric("send_events", "2 B send, both asleep (-e), half round trip", "us",
               p.perftest_lat("send", 2, 10000 // n, events=True),
               {"one eventfd hop": p.wake(1, 10000 // n)}, {"one eventfd hop": ("<=", 1.15)}),
        Metric("mediated_events", "2 B send mediated, all asleep (-e), half round trip", "us",
               p.perftest_lat("send", 2, 10000 // n, mode="mediated", events=True),
               {"two eventfd hops": p.wake(2, 10000 // n)}, {"two eventfd hops": ("<=", 1.2)}),
        Metric("mediated_spin", "2 B write mediated, both programs spin, half round trip", "us",
               p.perftest_lat("write", 2, 300, mode="mediated")),
        threads("ucx_lat", "UCX over a vdevice, 8 B tag, half round trip", "us", ("<=", 1.1),
                lambda mode: p.ucx_verbs("tag_lat", 8, 20000 // n, 1, mode)),
        threads("ucx_bw", "UCX over a vdevice, 1 MiB tags", "MiB/s", (">=", 0.9),
                lambda mode: p.ucx_verbs("tag_bw", 1 << 20, 2000 // n, 5, mode)),
        threads("mpi_lat", "Open MPI over a vdevice, 8 B, half round trip", "us", ("<=", 1.1),
                lambda mode: p.mpi(8, 20000 // n, mode)),
        threads("mpi_1m", "Open MPI over a vdevice, 1 MiB, half round trip", "us", ("<=", 1.1),
                lambda mode: p.mpi(1 << 20, 500 // n, mode)),
        *reaching(n),
        polling("poll_active", "poll_cq finds the completion of the one that is active",
                "poll_one_active"),
        polling("poll_receiving", "poll_cq finds the message of the one that is active",
                "poll_one_receiving"),
        polling("poll_empty", "poll_cq finds nothing", "poll_empty"),
        Metric("post_send", "post_send of 8 B inline, in one process", "ns",
               p.micro("post_send", seconds, unit=1)),
        Metric("post_and_poll", "post_send and poll_cq of its completion", "ns",
               p.micro("post_and_poll", seconds, unit=1)),
        Metric("ring_entry", "an entry into a ring (post_recv)", "ns",
               p.micro("ring_entry", seconds, unit=1)),
        *registration("1m", "1 MiB", 1 << 20),
        *registration("64m", "64 MiB", 64 << 20),
        *[Metric(f"connections_{mode}",
                 f"connections opened and closed by 16 processes, {mode}", "k/s",
                 p.connections(mode, 10000 // n), {}, {"": (">=", 20)})
          for mode in ("direct", "mediated")],
        Metric("open_device", "ibv_open_device", "us", p.open_device(seconds * 10)),
        Metric("create_vdevice", "create a vdevice (median of 64)", "us",
               p.create_vdevice(64), {}, {"": ("<=", 1000)}),
        *[point(plot, size, quick) for plot in ("latency", "bandwidth") for size in SIZES],
        *networks(seconds * 20, n),
        Growth("scale_vdevices", "vdevices", [16, 64] if quick else [64, 256, 1024, 2048, 4096],
               [("memory of vrdmad for each of {} idle vdevices", "KiB", "daemon_kib", ("<=", 64)),
                ("CPU of vrdmad with {} idle vdevices, in 5 s", "ticks", "idle_ticks", ("<=", 0))]),
        Growth("scale_qps", "qps",
               [64, 256] if quick else [1000, 2000, 5000, 10000, 20000, 40000, 65000]),
        Growth("scale_mrs", "mrs", [100, 1000] if quick else [1000, 5000, 10000, 50000, 100000]),
        Neighbours("neighbours", ["turns", "connects"] if quick else list(neighbours.ATTACKS),
                   0.2 if quick else 3),
        Containers("containers", [
            containers.Test("8 B tag, half round trip", "us", "tag_lat", 8, 20000 // n, 1, ("<=", 1.4)),
            containers.Test("64 KiB tags", "MiB/s", "tag_bw", 1 << 16, 10000 // n, 5, (">=", 1.0)),
            containers.Test("1 MiB tags", "MiB/s", "tag_bw", 1 << 20, 2000 // n, 5, (">=", 1.0)),
        ]),
        Operators("operators", *((2, 2, 200, 0.5) if quick else (50, 20, 100000, 6))),
        Starts("worker_start", 5 if quick else 200),
        Gaps("restart_gaps", [2, 4] if quick else [2, 256], 1 if quick else 9),
    ]


def reaching(n):
    """Memory that is reached, beside memory in place with the worker between."""
    for verb in ("send", "write", "read"):
        yield Metric(f"reach_{verb}_lat", f"8 B {verb}, memory reached, half round trip", "us",
                     p.perftest_lat(verb, 8, 3000 // n, env=p.REACHED),
                     {"mediated, in place": p.perftest_lat(verb, 8, 3000 // n, "mediated")},
                     {"mediated, in place": ("<=", 2)})
        if verb == "send":
            yield Metric(f"reach_{verb}_events", f"8 B {verb}, memory reached, all asleep (-e), half round trip", "us",
                     p.perftest_lat(verb, 8, 3000 // n, events=True, env=p.REACHED),
                     {"mediated, in place": p.perftest_lat(verb, 8, 3000 // n, "mediated", events=True)},
                     {"mediated, in place": ("<=", 2)})
        yield Metric(f"reach_{verb}_bw", f"1 MiB {verb}s, memory reached", "MiB/s",
                     p.perftest_bw(verb, 1 << 20, 1000 // n, env=p.REACHED),
                     {"mediated, in place": p.perftest_bw(verb, 1 << 20, 1000 // n, "mediated"),
                      "memcpy": p.copy(1 << 20, 3000 // n)},
                     {"memcpy": (">=", 0.5)})


def networks(seconds, n):
    """Between two vdevices that reach each other by RoCE v2 on a veth pair; programs sleep."""
    one, mib = "one queue pair", 1 << 20
    yield Metric("network_lat", "2 B send over a network, half round trip", "us", network.send_ping(5000 // n),
                 {"UDP, both spin": network.ping("spin", 20000 // n),
                  "UDP, both asleep": network.ping("sleep", 5000 // n)}, {"UDP, both spin": ("<=", 1.5)})
    yield Metric("network_asleep", "2 B send over a network after a pause, half round trip", "us",
                 network.send_ping(1000 // n, 300), {"UDP, both asleep": network.ping("sleep", 1000 // n, 300)},
                 {"UDP, both asleep": ("<=", 2.0)})
    for mtu, goals in ((1500, {"TCP": (">=", 0.5), "UDP by sendmmsg": (">=", 4)}),
                       (9000, {"TCP": (">=", 0.8), "UDP by sendmmsg": (">=", 4)})):
        yield Metric(f"network_write_{mtu}", f"1 MiB writes over a network of MTU {mtu:,}", "MiB/s",
                     network.write(mib, seconds, mtu),
                     {"TCP": network.tcp(seconds, mtu),
                      "UDP by sendmmsg": network.datagrams(network.PACKET_BYTES[mtu], seconds, mtu)}, goals)
    yield Metric("network_rate", "8 B writes over a network", "M/s", network.write_rate(8, seconds),
                 {"64 B by sendmmsg": network.datagram_rate(64, seconds, 1500)}, {"64 B by sendmmsg": (">=", 0.7)})
    yield Metric("network_qps", "64 KiB writes over a network, 1,000 queue pairs", "MiB/s",
                 network.write(1 << 16, seconds, 1500, 1000, 4), {one: network.write(1 << 16, seconds, 1500, 1, 4)},
                 {one: (">=", 0.8)})
    yield Metric("network_loss", "1 MiB writes over a network that loses 1 %", "MiB/s",
                 network.lossy(1500, network.write(mib, seconds, 1500)),
                 {"TCP": network.lossy(1500, network.tcp(seconds, 1500))}, {"TCP": (">=", 1.0)})
    for which, title in (("spins", "that spins"), ("sleeps", "that sleeps")):
        for key, over in (("direct", False), ("network", True)):
            yield Metric(f"threads_{key}_{which}",
                         f"8 B send, half round trip of the thread {title}, of two in each program, {key}", "us",
                         network.two_threads(which, "verbs", over),
                         {"TCP": network.two_threads(which, "tcp", over)}, {"TCP": ("<=", 1.0)})
    yield Metric("network_silent", "1 MiB writes beside a peer that has stopped to answer", "MiB/s",
                 network.beside_silence(1500, network.write(mib, seconds, 1500)),
                 {"alone": network.write(mib, seconds, 1500)}, {"alone": (">=", 0.9)})


def point(plot, size, quick):
    n = max(50, min(100000, 2**31 // size // 20)) // (20 if quick else 1)
    n = max(n, 20)
    if plot == "latency":
        few = max(20, n // 20)
        probes = {
            "vrdma write": p.perftest_lat("write", size, n),
            "vrdma send": p.perftest_lat("send", size, n),
            "vrdma send, asleep": p.perftest_lat("send", size, few, events=True),
            "vrdma send, mediated, asleep":
                p.perftest_lat("send", size, few, mode="mediated", events=True),
            "UCX put_lat": p.ucx_lat("put_lat", size, n),
            "UCX tag_lat": p.ucx_lat("tag_lat", size, n),
            "libfabric shm": p.pingpong_shm(size, few),
            "TCP over veth": p.qperf("tcp_lat", size, 1),
        }
    else:
        probes = {
            "vrdma write": p.perftest_bw("write", size, n),
            "vrdma send": p.perftest_bw("send", size, n),
            "vrdma write, mediated": p.perftest_bw("write", size, max(n // 10, 20), "mediated"),
            "UCX put_bw": p.ucx_bw("put_bw", size, n),
            "UCX tag_bw": p.ucx_bw("tag_bw", size, n),
            "memcpy": p.copy(size, n),
            "TCP over veth": p.qperf("tcp_bw", size, 1),
        }
    return Point(f"{plot}_{size}", plot, size, probes)
