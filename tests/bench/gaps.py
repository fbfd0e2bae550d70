"""How long mediated 8-byte WRITEs stop when a process of the daemon is killed and replaced, and how
long a worker takes to start.

Control starts the next worker. If control or the broker is killed, the daemon is started again at
once, as a service manager does.
"""

import json
import os
import signal

from stage import Trouble, ended

KILLED = ("worker", "control", "broker")


def descriptor_of(pid, target):
    """Whether the process has a descriptor of this file."""
    folder = f"/proc/{pid}/fd"
    for fd in os.listdir(folder):
        try:
            if os.readlink(f"{folder}/{fd}") == target:
                return True
        except FileNotFoundError:  # closed meanwhile
            pass
    return False


def processes(stage, program):
    """Those of the daemon that serve the program."""
    broker, = stage.children(stage.daemon.pid, "vrdmad-broker")
    worker, = (pid for pid in stage.children(broker, "vrdmad-worker")
               if descriptor_of(pid, f"/proc/{program.pid}/mem"))
    return {"worker": worker, "control": stage.daemon.pid, "broker": broker}


def longest_write(stream):
    """In ms, since this was asked last."""
    stream.send_signal(signal.SIGUSR1)
    said = stream.stdout.readline()
    if not said:
        raise Trouble(f"{' '.join(stream.args)}: ended by a signal, or waited too long for a WRITE")
    return float(said) / 1e3


def gap(stage, stream, killed, sessions):
    """In ms. Returns when all sessions are taken over."""
    serving = processes(stage, stream)
    longest_write(stream)
    os.kill(serving[killed], signal.SIGKILL)
    if killed != "worker":
        stage.daemon.wait(15)
        stage.launch()
    stage.wait_until(lambda: ended(serving["worker"]), 15, "the worker does not end")
    longest = longest_write(stream)
    stage.wait_until(stage.answers, 20, "vrdmad does not answer")
    stage.wait_until(lambda: stage.counted("vm", "sessions") == sessions, 20,
                     "not all sessions are taken over")
    return longest


def row(stage, sessions, rounds):
    side = stage.restarts()
    stream = stage.start([os.path.join(stage.programs, "tests/bench/bench_gaps"), str(sessions)], side,
                         0, ours=True)
    try:
        if stream.stdout.readline().strip() != "begun":
            raise Trouble("bench_gaps does not begin: " + stream.stdout.read())
        gaps = {killed: [] for killed in KILLED}
        for _ in range(rounds):
            for killed in KILLED:
                gaps[killed].append(gap(stage, stream, killed, sessions))
    finally:
        stage.stop(stream)
        stage.empty(side)
    if stage.counted("vm", "work_requests_direct"):
        raise Trouble("the WRITEs were direct")
    return {"sessions": sessions} | gaps


def rows(stage, counts, rounds, say):
    found = []
    for sessions in counts:
        say(f"{sessions} sessions")
        found.append(row(stage, sessions, rounds))
    return found


def starts(stage, count):
    """Times of listing and opening a device when that starts a worker, and when the worker runs."""
    words = [os.path.join(stage.programs, "tests/bench/bench_victim"), "start",
             stage.crowd(2), "d0", str(count)]
    lines = stage.finish(stage.start(words, "crowd2", 1, ours=True)).splitlines()
    return dict(zip(("first", "later"), map(json.loads, lines)))
