"""What operators' work costs, and whether tenants notice it, on a host with many vdevices of many tenants.

The cost: percent of one processor that vrdmad, `vrdmactl web` and its server take while one page is open, and how many
pictures it gets a second.

The tenants: two programs of two tenants exchange 8-byte messages by a worker, both asleep in between, and
another program opens a device again and again. They do so alone; beside an operator's commands that go to
another vrdmad, which has as many vdevices, and so take the processors but nothing of the tenants' vrdmad;
and beside the same commands for their own vrdmad.
"""

import http.client
import os
import threading
import time

import neighbours
import probes
from stage import Stage, Trouble

PORT = 18080
PAUSE = 1  # seconds between a page's questions, and between an operator's commands
# What the tenants have beside them.
BESIDE = {"alone": "nothing", "other": "an operator at another vrdmad", "own": "an operator at theirs"}
# What is taken of each round, in us.
TIMES = ("send median", "send p99", "open median", "open p99")


def file_of(netns, tenants, each):
    """A file for `vrdmactl apply`: vdevices on the netdevs d0, d1, ..., one of each tenant on each."""
    parts = ['set = "crowd"']
    for tenant in range(tenants):
        parts.append(f"[tenant.crowd{tenant}]\nceiling = {{ qp = {each * 1024} }}")
        parts += [f'[[vdev]]\nname = "t{tenant}-{i}"\nnetns = "{netns}"\nnetdev = "d{i}"\ntenant = "crowd{tenant}"'
                  for i in range(each)]
    return "\n\n".join(parts) + "\n"


def fill(stage, tenants, each):
    """The path of the file that its vdevices were made from."""
    path = os.path.join(stage.folder, "crowd.toml")
    if not os.path.exists(path):
        netns = stage.crowd(each)
        with open(path, "w", encoding="utf-8") as file:
            file.write(file_of(netns, tenants, each))
        stage.ctl("apply", "-f", path)
    return path


class Again:
    """Does something again and again, with a pause in between, until it is told to stop."""

    def __init__(self, once):
        self.once, self.times, self.trouble, self.over = once, 0, None, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            while not self.over.is_set():
                self.once(self.times)
                self.times += 1
                self.over.wait(PAUSE)
        except (Trouble, OSError) as trouble:
            self.trouble = trouble

    def stop(self):
        self.over.set()
        self.thread.join(120)
        if self.trouble or not self.times:
            raise Trouble(f"an operator's work: {self.trouble or 'nothing was done'}")


class Page:
    """`vrdmactl web` with a page open in a browser, which asks for the picture."""

    def __init__(self, stage, port):
        self.stage, self.port = stage, port
        self.program = stage.start([f"{stage.build}/bin/vrdmactl", "web", "--listen", f"127.0.0.1:{port}"], ours=True)
        address = self.program.stdout.readline().strip()
        if "#" not in address:
            raise Trouble(f"vrdmactl web: {address}")
        self.token = address.split("#")[1]
        self.asking = Again(self.ask)

    def ask(self, _):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/state", headers={"Authorization": "Bearer " + self.token})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if answer.status != 200 or b'"error":""' not in text:
            raise Trouble(f"the page: {answer.status} {text[:200]}")

    def close(self):
        try:
            self.asking.stop()
        finally:
            self.stage.stop(self.program)


class Operator:
    """A page, `top`, and one after the other `vdev list`, `diff` and `apply`."""

    def __init__(self, stage, file, port):
        self.stage, self.page = stage, Page(stage, port)
        # Its output is read, lest it stand still.
        self.top = stage.start([f"{stage.build}/bin/vrdmactl", "top"], ours=True)
        threading.Thread(target=self.top.stdout.read, daemon=True).start()
        commands = (("vdev", "list"), ("diff", "-f", file), ("apply", "-f", file))
        self.work = Again(lambda times: stage.ctl(*commands[times % len(commands)]))

    def leave(self):
        try:
            self.work.stop()
            if self.top.poll() is not None:
                raise Trouble("top has ended")
        finally:
            self.top.kill()
            self.top.wait()
            self.stage.running.remove(self.top)
            self.page.close()


def ticks(pid):
    """Seconds of CPU that the process has taken."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def cost(stage, seconds):
    """Percent of a processor while one page is open, by process."""
    page = Page(stage, PORT)
    try:
        pids = {"vrdmad": [stage.daemon.pid], "vrdmactl web": [page.program.pid],
                "its server": stage.children(page.program.pid, "vrdmactl-web")}
        time.sleep(3 * PAUSE)  # the first picture asks for everything
        before = {name: sum(map(ticks, its)) for name, its in pids.items()}
        began, times = time.monotonic(), page.asking.times
        time.sleep(seconds)
        took = time.monotonic() - began
        found = {name: 100 * (sum(map(ticks, its)) - before[name]) / took for name, its in pids.items()}
        return found | {"pictures": (page.asking.times - times) / took}
    finally:
        page.close()


def tenants(stage, sends, seconds):
    """The times of TIMES."""
    output = probes.perftest(stage, "mediated", "ib_send_lat", "-s", 8, "-n", sends, "-C", "-I", 8, "-e")
    # Bytes, iterations, min, max, typical, average, deviation, 99 %, 99.9 %; of half a round trip, in cycles.
    row = probes.numbers_of(output, "#bytes", 9)
    opened = neighbours.victim(stage, "open", seconds)
    cycles = probes.ticks_per_us(stage)
    return dict(zip(TIMES, (float(row[4]) / cycles, float(row[7]) / cycles, opened["median"], opened["p99"])))


def measured(stage, entry, rounds, say):
    """{"cost": {process: [a number a round]}, "tenants": {beside: {time: [a number a round]}}}"""
    stage.neighbours()
    path = fill(stage, entry.tenants, entry.each)
    costs, times = {}, {name: {time: [] for time in TIMES} for name in BESIDE}
    for _ in range(rounds):
        for name, value in cost(stage, entry.seconds).items():
            costs.setdefault(name, []).append(value)
    say(", ".join(f"{name} {min(values):.1f} to {max(values):.1f}" for name, values in costs.items()))
    with Stage(stage.build, "other-", stage.programs) as other:
        stage.beside.append(other)
        where = {"other": (other, fill(other, entry.tenants, entry.each)), "own": (stage, path)}
        for _ in range(rounds):
            for name in BESIDE:
                operator = Operator(*where[name], PORT + 1) if name in where else None
                try:
                    for time_of, value in tenants(stage, entry.sends, entry.seconds).items():
                        times[name][time_of].append(value)
                finally:
                    if operator:
                        operator.leave()
            say("a round: send p99 " + ", ".join(f"{name} {its[TIMES[1]][-1]:.0f} us" for name, its in times.items()))
        stage.beside.remove(other)
    if stage.counted("vc", "work_requests_direct"):
        raise Trouble("the tenants' sends were direct")
    return {"cost": costs, "tenants": times}
