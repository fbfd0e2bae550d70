"""Probes: each runs one program, or two that talk, and returns one number.

The server stands on processor 0, the client on processor 1, ours as well as others. Latencies are
half round trips in microseconds, the median of all iterations; bandwidths are MiB/s.
"""

import functools
import json
import os
import re
import signal
import time

from stage import SIDES, Trouble

HERE = os.path.dirname(os.path.realpath(__file__))
PERFTEST_PORT, UCX_PORT, PINGPONG_PORT, QPERF_PORT = 18515, 13337, 47592, 19765


def numbers_of(output, words_before, columns):
    """The row of numbers under the line that begins with `words_before`."""
    lines = output.splitlines()
    for title, row in zip(lines, lines[1:]):
        if title.strip().startswith(words_before):
            found = row.split()
            if len(found) >= columns:
                return found
    raise Trouble(f"no line of numbers in: {output.strip()[-800:]}")


@functools.lru_cache
def ticks_per_us(stage):
    return json.loads(limit_output(stage, "clock"))["mhz"]


# ---- ours: perftest -----------------------------------------------------------------------------

REACHED = {"VRDMA_MEMORY": "reached"}  # in the environment: nothing is put in place


def perftest(stage, mode, program, *options, disturb=None, env=None):
    server_side, client_side = SIDES[mode]
    words = [program, "-F", *map(str, options)]
    server = stage.start(words + ["-d", "v" + server_side], server_side, 0, True, env)
    stage.listening(server, PERFTEST_PORT)
    client = stage.start(words + ["-d", "v" + client_side, "10.0.0.1"], client_side, 1, True, env)
    if disturb:
        disturb(server, client)
    output = stage.finish(client)
    stage.finish(server)
    return output


def stops(server, client):
    """Makes the server stand still for 10 ms in each 100, until the client ends."""
    while client.poll() is None:
        server.send_signal(signal.SIGSTOP)
        time.sleep(0.01)
        server.send_signal(signal.SIGCONT)
        time.sleep(0.09)


def inline_for(size):
    """What perftest's -I is for messages of this size: what fits into a ring entry goes inline."""
    return ["-I", size] if size <= 64 else ["-I", 0]


def perftest_lat(verb, size, iterations, mode="direct", events=False, column="typical", env=None):
    def run(stage):
        output = perftest(stage, mode, f"ib_{verb}_lat", "-s", size, "-n", iterations, "-C",
                          *(inline_for(size) if verb != "read" else []), *(["-e"] if events else []), env=env)
        # In cycles, for microseconds are printed in hundredths. Columns: bytes, iterations, min,
        # max, typical, average, ...
        return (float(numbers_of(output, "#bytes", 6)[{"typical": 4, "average": 5}[column]])
                / ticks_per_us(stage))
    return run


def perftest_bw(verb, size, iterations, mode="direct", options=(), rate=False, disturb=None, env=None):
    """MiB/s, or (rate) million messages a second."""
    def run(stage):
        output = perftest(stage, mode, f"ib_{verb}_bw", "-s", size, "-n", iterations, "-N",
                          *(inline_for(size) if verb != "read" else []), *options, disturb=disturb, env=env)
        # Bytes, iterations, peak MiB/s, average MiB/s, million messages a second.
        return float(numbers_of(output, "#bytes", 5)[4 if rate else 3])
    return run


def undisturbed(times, probe):
    """The least of several short averages: one in which nobody else took the processor.

    The median of many iterations can only be a multiple of what the time stamp counter counts in,
    10 ns on some machines; an average is as fine as one likes, but a single preemption spoils it.
    """
    return lambda stage: min(probe(stage) for _ in range(times))


# ---- ours: connections by rdma_cm ---------------------------------------------------------------

STORM_PAIRS, STORM_PORT, STORM_WINDOW = 8, 7000, 64


def connections(mode, count):
    """A second: opened and closed by pairs of processes, each with a queue pair at either end."""
    def run(stage):
        words = [os.path.join(stage.programs, "tests/integration/vrdma_rdmacm_storm")]
        servers, clients = SIDES[mode]
        for side in (servers, clients):
            stage.ctl("quota", "set", "v" + side, "qp=64k", "cq=4k")

        def start(role, side):
            return [stage.start([*words, role, "10.0.0.1", str(STORM_PORT + i),
                                 str(count // STORM_PAIRS), str(STORM_WINDOW)], side, ours=True)
                    for i in range(STORM_PAIRS)]
        programs = start("server", servers)
        for server in programs:
            server.stdout.readline()  # it listens, or says why not and fails
        began = time.monotonic()
        programs += start("client", clients)
        for program in programs:
            stage.finish(program)
        return count // STORM_PAIRS * STORM_PAIRS / (time.monotonic() - began) / 1e3
    return run


# ---- ours: programs with several threads --------------------------------------------------------
#
# Their memory is put in place while the other threads are held, or (guarded) protected by a
# userfaultfd; or it is reached.

UCX_OVER_VERBS = {"UCX_TLS": "rc_verbs,ud_verbs,self"}


def entering(stage, side, words):
    return [f"{stage.build}/bin/vrdmactl", "exec", "v" + side, "--", *map(str, words)]


def ucx_verbs(test, size, iterations, column, mode="direct"):
    def run(stage):
        words = ["ucx_perftest", "-t", test, "-s", size, "-n", iterations, "-w",
                 max(iterations // 10, 5), "-f", "-v"]
        server_side, client_side = SIDES[mode]
        server = stage.start(entering(stage, server_side, words), None, 0, True, UCX_OVER_VERBS)
        stage.listening(server, UCX_PORT)
        output = stage.finish(stage.start(entering(stage, client_side, words + ["10.0.0.1"]), None, 1,
                                          True, UCX_OVER_VERBS))
        stage.finish(server)
        return ucx_row(output)[column]
    return run


def mpi(size, iterations, mode="direct"):
    """Half a round trip in us, of Open MPI over UCX over verbs."""
    def run(stage):
        program = os.path.join(stage.folder, "mpi")
        if not os.path.exists(program):
            stage.finish(stage.start(["mpicc", "-O2", "-o", program, f"{HERE}/mpi.c"]))
        agent = os.path.join(stage.folder, "agent")
        with open(agent, "w", encoding="utf-8") as file:  # instead of ssh
            file.write("#!/bin/bash\nhost=$1\nshift\n"
                       f'exec {stage.build}/bin/vrdmactl exec "$host" -- '
                       'unshare --uts sh -c "hostname $host; $*"\n')
        os.chmod(agent, 0o755)
        first, second = ("v" + side for side in SIDES[mode])
        words = ["env", *(f"{name}={value}" for name, value in UCX_OVER_VERBS.items()), "mpirun",
                 "--allow-run-as-root", "--mca", "plm_rsh_agent", agent, "--mca", "pml", "ucx",
                 "--mca", "btl", "self", "--mca", "coll", "^hcoll", "--bind-to", "none", "--host",
                 f"{first}:1,{second}:1", "-np", 2, program, size, iterations]
        output = stage.finish(stage.start(entering(stage, SIDES[mode][0], [
            "unshare", "--uts", "sh", "-c", f'hostname {first}; exec "$@"', "-", *words]), ours=True))
        return float(output.split()[-1])
    return run


def reached(probe):
    return lambda stage: probe(stage.without_stopper())


# ---- peers --------------------------------------------------------------------------------------

def ucx(stage, test, size, iterations, options=()):
    words = ["ucx_perftest", "-t", test, "-s", str(size), "-n", str(iterations), "-w",
             str(iterations // 10), "-f", "-v", *options]
    env = {"UCX_TLS": "posix,self"}
    server = stage.start(words, "a", 0, env=env)
    stage.listening(server, UCX_PORT)
    output = stage.finish(stage.start(words + ["127.0.0.1"], "a", 1, env=env))
    stage.finish(server)
    return ucx_row(output)


def ucx_row(output):
    """Iterations, median latency, average, overall, average bandwidth, overall, average rate,
    overall."""
    for line in output.splitlines():
        row = line.split(",")
        if len(row) == 8 and row[0].strip().isdigit():
            return [float(word) for word in row]
    raise Trouble(f"ucx_perftest printed no numbers: {output.strip()[-500:]}")


def uct_options(test, size):
    if test.startswith(("put", "am")):  # the transport itself; tag_* has UCP above it
        layout = "bcopy" if test.startswith("am") and size > 64 else "short"
        return ["-d", "memory", "-x", "posix", "-D", layout]
    return []


def ucx_lat(test, size, iterations, column="typical"):
    number = {"typical": 1, "average": 3}[column]
    return lambda stage: ucx(stage, test, size, iterations, uct_options(test, size))[number]


def ucx_bw(test, size, iterations):
    return lambda stage: ucx(stage, test, size, iterations, uct_options(test, size))[5]


def ucx_rate(test, size, iterations):
    return lambda stage: ucx(stage, test, size, iterations, uct_options(test, size))[7] / 1e6


def pingpong_shm(size, iterations):
    def run(stage):
        words = ["fi_pingpong", "-p", "shm", "-e", "rdm", "-I", str(iterations), "-S", str(size)]
        server = stage.start(words, "a", 0)
        stage.listening(server, PINGPONG_PORT)
        output = stage.finish(stage.start(words + ["127.0.0.1"], "a", 1))
        stage.finish(server)
        # bytes, sent, acknowledged, total, time, MB/s, us a transfer; an average
        return float(numbers_of(output, "bytes", 7)[6])
    return run


UNITS = {"ns": 1e-3, "us": 1, "ms": 1e3, "sec": 1e6, "bytes/sec": 1 / 2**20,
         "KB/sec": 1e3 / 2**20, "MB/sec": 1e6 / 2**20, "GB/sec": 1e9 / 2**20}


def qperf(test, size, seconds):
    def run(stage):
        server = stage.start(["qperf"], "a", 0)
        stage.listening(server, QPERF_PORT)
        output = stage.finish(stage.start(
            ["qperf", "-t", str(seconds), "-m", str(size), "--precision", "6", "10.0.0.1", test],
            "b", 1))
        stage.stop(server)
        found = re.search(r"(?:latency|bw) *= *([\d.,]+) *(\S+)", output)
        if not found or found[2] not in UNITS:
            raise Trouble(f"qperf printed no number: {output}")
        return float(found[1].replace(",", "")) * UNITS[found[2]]
    return run


# ---- limits -------------------------------------------------------------------------------------

def limit_output(stage, *words):
    program = os.path.join(stage.programs, "tests/bench/bench_limits")
    return stage.finish(stage.start([program, *map(str, words)]))


def cache_line(iterations, column="typical"):
    return lambda stage: json.loads(limit_output(stage, "cache-line", iterations))[column] / 1e3


def copy(size, iterations):
    return lambda stage: json.loads(limit_output(stage, "copy", size, iterations))["rate"]


def wake(hops, iterations):
    return lambda stage: json.loads(limit_output(stage, "wake", hops, iterations))["typical"] / 1e3


# ---- single calls, and many objects -------------------------------------------------------------

def micro(name, seconds, unit=1e3):
    """Google Benchmark's time of a case of bench_micro, in us (or `unit` ns)."""
    def run(stage):
        program = os.path.join(stage.programs, "tests/bench/bench_micro")
        output = stage.finish(stage.start(  # which warns of Debian's build of the library, first
            [program, f"--benchmark_filter=^{name}(/manual_time)?$", "--benchmark_format=json",
             f"--benchmark_min_time={seconds}"], stage.ample(), 1, ours=True))
        try:
            cases = json.JSONDecoder().raw_decode(output, output.index("{\n"))[0]["benchmarks"]
        except (ValueError, KeyError):
            raise Trouble(f"bench_micro {name}: {output.strip()[-500:]}") from None
        return cases[0]["real_time"] / unit
    return run


def open_device(seconds):
    """Median, in us."""
    def run(stage):
        words = [os.path.join(stage.programs, "tests/bench/bench_victim"), "open", str(seconds)]
        return json.loads(stage.finish(stage.start(words, "a", 1, ours=True)))["median"]
    return run


def scale(stage, what, counts):
    """What bench_scale prints, a row for each count, and the row of the deletions."""
    program = os.path.join(stage.programs, "tests/bench/bench_scale")
    listed = ",".join(map(str, counts))
    if what in ("vdevices", "creations"):
        words, side = [stage.crowd(counts[-1])], None
    else:
        words, side = [], stage.ample()
    output = stage.finish(stage.start([program, what, str(stage.daemon.pid), *words, listed], side,
                                      ours=True), limit=600)
    rows = [json.loads(line) for line in output.splitlines()]
    return rows[:-1], rows[-1]


def create_vdevice(count):
    """Median of so many creations, in us."""
    return lambda stage: scale(stage, "creations", [count])[0][0]["median_us"]
