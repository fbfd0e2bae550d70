"""What is measured: metrics with their goals, and the curves of the plots.

A metric is ours, a peer, and a goal for their ratio or (no peer) for ours. `--only` takes keys.
"""

from dataclasses import dataclass, field
from typing import Callable, Optional

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
class Curve:
    """A curve of a plot: a probe for each size."""
    plot: str
    name: str
    ours: bool
    probe: Callable  # (size, iterations) -> probe


def metrics(quick):
    n = 100 if quick else 1  # so many times fewer iterations
    rate = ["-t", 512]
    return [
        Metric("write_lat", "2 B write, half round trip", "us",
               p.perftest_lat("write", 2, 1000000 // n),
               {"UCX put_lat": p.ucx_lat("put_lat", 2, 1000000 // n),
                "cache-line ping-pong": p.cache_line(1000000 // n)},
               {"UCX put_lat": ("<=", 1.0), "cache-line ping-pong": ("<=", 1.2)}),
        Metric("send_lat", "2 B send, half round trip", "us",
               p.perftest_lat("send", 2, 1000000 // n),
               {"UCX am_lat": p.ucx_lat("am_lat", 8, 1000000 // n),  # 8: its smallest
                "UCX tag_lat": p.ucx_lat("tag_lat", 2, 1000000 // n)},
               {"UCX am_lat": ("<=", 1.0)}),
        Metric("write_rate", "8 B writes", "M/s",
               p.perftest_rate("write", 8, 10000000 // n, options=rate),
               {"UCX put_bw": p.ucx_rate("put_bw", 8, 10000000 // n)}, {"": (">=", 30)}),
        Metric("send_rate", "8 B sends", "M/s",
               p.perftest_rate("send", 8, 5000000 // n, options=rate + ["-r", 512]),
               {"UCX am_bw": p.ucx_rate("am_bw", 8, 5000000 // n)}, {"": (">=", 12)}),
        Metric("write_bw_64k", "write bandwidth, 64 KiB", "MiB/s",
               p.perftest_bw("write", 65536, 100000 // n),
               {"memcpy": p.copy(65536, 100000 // n),
                "UCX put_bw": p.ucx_bw("put_bw", 65536, 100000 // n)},
               {"memcpy": (">=", 0.95), "UCX put_bw": (">=", 1.0)}),
        Metric("write_bw_1m", "write bandwidth, 1 MiB", "MiB/s",
               p.perftest_bw("write", 1048576, 6000 // n),
               {"memcpy": p.copy(1048576, 6000 // n),
                "UCX put_bw": p.ucx_bw("put_bw", 1048576, 6000 // n)},
               {"memcpy": (">=", 0.95), "UCX put_bw": (">=", 1.0)}),
        Metric("send_events", "2 B send, both asleep (-e), half round trip", "us",
               p.perftest_lat("send", 2, 30000 // n, events=True),
               {"one eventfd hop": p.wake(1, 30000 // n)}, {"one eventfd hop": ("<=", 1.15)}),
        Metric("mediated_events", "2 B send mediated, all asleep (-e), half round trip", "us",
               p.perftest_lat("send", 2, 20000 // n, mode="mediated", events=True),
               {"two eventfd hops": p.wake(2, 20000 // n)}, {"two eventfd hops": ("<=", 1.2)}),
    ]
