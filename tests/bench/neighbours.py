"""What a neighbour's programs notice of an attack: the latency of an 8-byte mediated WRITE and of
opening a device, without an attack and beside each.

The attacker stands on processor 0, the victim, asleep on its channel, on processor 1; the daemon's
threads may be on either. The attacker's vdevice has the default quotas.
"""

import json
import os
import threading

from stage import Trouble

STORM_PAIRS, STORM_PORT, WITHOUT_END = 4, 7100, 1 << 30


def bench(name):
    """An attack of bench_attacks."""
    def programs(stage, side):
        yield stage.start([os.path.join(stage.programs, "tests/bench/bench_attacks"), name], side, 0,
                          ours=True), "begun"
    return programs


def hostile(program, begun, *modes):
    """Programs of tests/integration/hostile, at the attacker's own socket."""
    def programs(stage, side):
        path = os.path.join(stage.programs, "tests/integration", program)
        for mode in modes:
            yield stage.start([path, mode[0], stage.socket(side), *mode[1:]], side, 0,
                              ours=True), begun
    return programs


def storm(stage, side):
    """Connections by rdma_cm, of the attacker with himself."""
    words = [os.path.join(stage.programs, "tests/integration/vrdma_rdmacm_storm")]
    for role, first in (("server", ""), ("client", None)):
        for i in range(STORM_PAIRS):
            yield stage.start([*words, role, stage.address(side), str(STORM_PORT + i),
                               str(WITHOUT_END), "16"], side, 0, ours=True), first


# Name -> what it is, and its programs, with the line that each writes when it goes on (None: it writes
# none; empty: any).
ATTACKS = {
    "hangs": ("descriptors that hang in close(2)",
              hostile("vrdma_hangs", "sent", ("send", "300", "600"))),
    "holes": ("WRITEs into missing pages", bench("holes")),
    "turns": ("64 QPs of 1 MiB WRITEs", bench("turns")),
    "connects": ("endless connections and requests",
                 hostile("vrdma_connects", "begun", ("connect", "600"), ("ask", "600"))),
    "reach": ("16 processes with reached memory", bench("reach")),
    "groups": ("datagrams to 512 members", bench("groups")),
    "large_writes": ("1,024 QPs of 1 MiB WRITEs", bench("large_writes")),
    "small_writes": ("64 QPs of 8-byte WRITEs", bench("small_writes")),
    "reads": ("READs over 4,096 MRs", bench("reads")),
    "registrations": ("registration churn", bench("registrations")),
    "queue_pairs": ("QP churn", bench("queue_pairs")),
    "rdma_cm": ("rdma_cm churn", storm),
    "datagrams": ("datagram flood", bench("datagrams")),
}


def victim(stage, what, seconds):
    program = os.path.join(stage.programs, "tests/bench/bench_victim")
    output = stage.finish(stage.start([program, what, str(seconds)], "g", 1, ours=True),
                          limit=60 + 2 * seconds)
    return json.loads(output.splitlines()[-1])


def wait_for(program, line):
    """Reads until the program has written the line, and from then on what it writes."""
    while True:
        said = program.stdout.readline()
        if not said:
            raise Trouble(f"{' '.join(program.args)}: ended before it began")
        if not line or said.strip() == line:
            break
    program.said = []
    threading.Thread(target=lambda: program.said.extend(program.stdout), daemon=True).start()


def measure(stage, name, side, seconds):
    """A row: the victim's times beside the attack (None: without)."""
    running = []
    try:
        for program, line in ATTACKS[name][1](stage, side) if name else ():
            running.append(program)
            if line is not None:
                wait_for(program, line)
        row = {"attack": name or "none", "title": ATTACKS[name][0] if name else "no attack",
               "fabric": {"h": "same", "i": "other"}[side] if name else ""}
        for what in ("write", "open"):
            row[what] = victim(stage, what, seconds)
        for program in running:
            if program.poll() is not None:
                raise Trouble(f"{' '.join(program.args)}: ended, with status {program.returncode}: "
                              f"{''.join(program.said).strip()}")
        return row
    finally:
        for program in running:
            program.kill()
            program.wait()
            stage.running.remove(program)
        if name:
            stage.empty(side)


def rows(stage, names, seconds, say):
    """All rows. Trouble if the victim's WRITEs were not a worker's."""
    stage.neighbours()
    found = [measure(stage, None, "h", seconds)]
    for name in names:
        for side in ("h", "i"):
            say(f"beside {name}, {'same' if side == 'h' else 'another'} fabric")
            found.append(measure(stage, name, side, seconds))
    if stage.counted("vg", "work_requests_direct"):
        raise Trouble("the victim's WRITEs were direct")
    return found
