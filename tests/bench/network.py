"""Two vdevices that reach each other over a network (RoCE v2), beside bare sockets on the same veth pair.

Two namespaces stand for two hosts: their tenants and fabrics are separate, each has a worker of its own. The
server stands on processor 0, the client on processor 1. While WRITEs are measured each worker stands on the
processor of its side, as if that were its host's only one; else the scheduler would put both on one now and then.
"""

import contextlib
import json
import os
import subprocess

from stage import Trouble, sh

SILENT = "10.0.0.3"  # another address of the server's namespace
PACKET_BYTES = {1500: 1040, 9000: 4112}  # of a WRITE's packet of the MTU that fits: 1024, 4096
LOSS = "numgen random mod 100 == 0 drop"


# ---- two programs -------------------------------------------------------------------------------

def program(stage, name):
    return os.path.join(stage.programs, "tests/bench", name)


@contextlib.contextmanager
def serving(stage, side, words, ours=False, processor=0):
    """A server that is ready. `processor`: None: it may use all."""
    server = stage.start([program(stage, words[0]), *map(str, words[1:])], side, processor, ours)
    said = server.stdout.readline()
    if said != "ready\n":
        raise Trouble(f"{' '.join(server.args)}: {said}{server.stdout.read()}")
    try:
        yield server
    finally:
        if server in stage.running:
            stage.stop(server)


def client(stage, side, words, ours=False, processor=1):
    return stage.start([program(stage, words[0]), *map(str, words[1:])], side, processor, ours)


# ---- vdevices: the programs sleep while they wait --------------------------------------------------

def queues_of(pid):
    """The inode numbers of the queues that a process has mapped; of one that has ended, none."""
    try:
        with open(f"/proc/{pid}/maps", encoding="ascii") as lines:
            return {line.split()[4] for line in lines if "/memfd:vrdma-queues" in line}
    except (FileNotFoundError, ProcessLookupError):
        return set()


def place_worker(stage, of, processor):
    """The worker of a program stands on this processor from now on."""
    broker, = stage.children(stage.daemon.pid, "vrdmad-broker")
    found = []

    def find():
        found.extend(pid for pid in stage.children(broker, "vrdmad-worker") if queues_of(pid) & queues_of(of.pid))
        return found or of.poll() is not None

    stage.wait_until(find, 10, "there is no worker")
    for worker in found:
        for thread in os.listdir(f"/proc/{worker}/task"):
            os.sched_setaffinity(int(thread), {processor})


def remote(stage, mtu, what, *numbers):
    sides = stage.network(mtu)
    address = stage.address(sides[0])
    with serving(stage, sides[0], ["bench_remote", "serve", address], True) as server:
        measured = client(stage, sides[1], ["bench_remote", what, address, *numbers], True)
        if what == "write":
            place_worker(stage, server, 0)
            place_worker(stage, measured, 1)
        output = stage.finish(measured)
        stage.finish(server)
    return json.loads(output)


def send_ping(iterations, pause=0, mtu=1500):
    """Half a round trip of a SEND of 2 bytes in us."""
    return lambda stage: remote(stage, mtu, "ping", iterations, pause)["typical"] / 1e3


def write(size, seconds, mtu, qps=1, depth=8):
    """MiB/s."""
    return lambda stage: remote(stage, mtu, "write", size, seconds, qps, depth)["rate"]


def write_rate(size, seconds, mtu=1500, depth=512):
    """Million a second."""
    return lambda stage: remote(stage, mtu, "write", size, seconds, 1, depth)["messages"]


def two_threads(which, kind, network=True):
    """Half a round trip of 8 bytes in us, of the thread that "spins" or the one that "sleeps". Both programs may use
    both processors."""
    def run(stage):
        sides = stage.network(1500) if network else ("a", "b")
        address = stage.address(sides[0]) if network else "10.0.0.1"
        ours = kind == "verbs"
        with serving(stage, sides[0], ["bench_threads", "serve", address, kind], ours, None) as server:
            output = stage.finish(client(stage, sides[1], ["bench_threads", "ask", address, kind, 2], ours, None))
            stage.finish(server)
        return json.loads(output)[which] / 1e3
    return run


# ---- bare sockets -------------------------------------------------------------------------------

def ping(how, iterations, pause=0, mtu=1500):
    """Half a round trip of 2 bytes in us."""
    def run(stage):
        sides = stage.network(mtu)
        address = stage.address(sides[0])
        with serving(stage, sides[0], ["bench_network", "echo", address, how]):
            output = stage.finish(client(stage, sides[1], ["bench_network", "ping", address, how, iterations, pause]))
        return json.loads(output)["typical"] / 1e3
    return run


def drained(stage, mtu, kind, what, *numbers):
    sides = stage.network(mtu)
    address = stage.address(sides[0])
    with serving(stage, sides[0], ["bench_network", "drain", address, kind]) as server:
        stage.finish(client(stage, sides[1], ["bench_network", what, address, *numbers]))
        return json.loads(stage.finish(server))


def tcp(seconds, mtu):
    return lambda stage: drained(stage, mtu, "tcp", "stream", seconds)["rate"]


def datagrams(size, seconds, mtu):
    """MiB/s that arrive."""
    return lambda stage: drained(stage, mtu, "udp", "flood", size, seconds)["rate"]


def datagram_rate(size, seconds, mtu):
    """Million a second that arrive."""
    return lambda stage: drained(stage, mtu, "udp", "flood", size, seconds)["datagrams"]


# ---- a network that loses packets ---------------------------------------------------------------

@contextlib.contextmanager
def filtered(stage, side, rule):
    """What comes to the namespace goes through this rule of nft(8)."""
    table = f"table ip bench {{\nchain arriving {{\ntype filter hook prerouting priority 0\n{rule}\n}}\n}}\n"
    done = subprocess.run([*stage.enter(side), "nft", "-f", "-"], input=table, text=True, capture_output=True)
    if done.returncode:
        raise Trouble(f"nft: {done.stderr}")
    try:
        yield
    finally:
        sh(*stage.enter(side), "nft", "delete", "table", "ip", "bench")


def lossy(mtu, probe):
    def run(stage):
        with filtered(stage, stage.network(mtu)[0], LOSS):
            return probe(stage)
    return run


def beside_silence(mtu, probe):
    """While a queue pair of the same two vdevices writes to a peer that has stopped to answer."""
    def run(stage):
        sides = stage.network(mtu)
        if stage.gid_index(sides[0], SILENT) is None:
            sh(*stage.enter(sides[0]), "ip", "address", "add", SILENT + "/24", "dev", "eth0")
            stage.wait_until(lambda: stage.gid_index(sides[0], SILENT) is not None, 10, "there is no GID")
        before = stage.counted("v" + sides[0], "network_packets_received")
        with serving(stage, sides[0], ["bench_remote", "serve", SILENT], True) as server:
            writer = client(stage, sides[1], ["bench_remote", "write", SILENT, 1 << 20, 60, 1, 8], True)
            stage.wait_until(lambda: stage.counted("v" + sides[0], "network_packets_received") > before + 1000, 20,
                             "the peer gets no WRITEs")
            with filtered(stage, sides[0], f"ip daddr {SILENT} udp dport 4791 drop"):
                found = probe(stage)
            if writer.poll() is not None:
                raise Trouble("the queue pair of the silent peer has ended: " + writer.stdout.read())
            stage.stop(writer)
            stage.stop(server)
        return found
    return run
