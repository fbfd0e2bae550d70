"""The stage of a measurement: namespaces, veth pairs, a vrdmad and vdevices of its own.

        direct                  mediated              guarded
    a           b           c             d         k           l        namespaces
    va ------- vb           vc ---------- vd        vk ------- vl        vdevices: one tenant, or two in
    10.0.0.1    10.0.0.2    10.0.0.1      10.0.0.2  10.0.0.1    10.0.0.2   one fabric; those of k and l
                                                                         may have userfaultfd(2)

Used by `with`; what was made is taken away at its end, however that comes about. What a stage left
whose process was killed outright is removed by the next one.
"""

import ctypes
import glob
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PREFIX = "vrbench"
SIDES = {"direct": ("a", "b"), "mediated": ("c", "d"), "guarded": ("k", "l")}
TENANTS = {"a": "red", "b": "red", "c": "red", "d": "blue", "k": "red", "l": "red"}
NETWORK = {1500: ("o", "p"), 9000: ("q", "r")}  # by the MTU of the network between them
SECONDS = "bdfhjlnpr"  # of each pair


class Trouble(Exception):
    """The measuring itself did not work; the text says why."""


def die_with_parent(processors):
    """To be called between fork and exec."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if processors is not None:
        os.sched_setaffinity(0, processors)


def sh(*words, ok=False):
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if done.returncode and not ok:
        raise Trouble(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def remove_namespace(name):
    for pid in sh("ip", "netns", "pids", name, ok=True).split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    sh("ip", "netns", "delete", name, ok=True)


def listens(pid, port):
    """Whether a TCP socket of that port listens in the network namespace of the process."""
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}", encoding="ascii") as lines:
            if re.search(rf":{port:04X} [0-9A-F]+:0000 0A ", lines.read()):
                return True
    return False


def ended(pid):
    """The process has ended, reaped or not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


class Stage:
    def __init__(self, build, of="", programs=None):
        self.build = os.path.abspath(build)
        self.programs = os.path.abspath(programs or build)  # what measures, for any build alike
        self.of = of  # part of the names of its namespaces
        self.without = None  # see without_stopper()
        self.beside = []  # stages that are measured with this one
        self.running = []  # programs in the background
        self.namespaces = []
        self.daemon = None
        self.folder = None

    def __enter__(self):
        try:
            self._sweep()
            # In memory, as vrdmad's own run directory is.
            self.folder = tempfile.mkdtemp(prefix=f"{PREFIX}-{os.getpid()}-", dir="/dev/shm")
            self.run_dir = os.path.join(self.folder, "run")
            self.classes = os.path.join(self.folder, "classes.conf")  # vrdmad reads it for each container
            self._start_daemon()
            for mode in SIDES:
                self._join(*SIDES[mode])
                for side in SIDES[mode]:
                    words = ["vdev", "create", "v" + side, "--netns", self.name(side), "--netdev",
                             "eth0", "--tenant", TENANTS[side], "--fabric", mode]
                    try:
                        self.ctl(*words, *(["--allow", "userfaultfd"] if self._guards(mode) else []))
                    except Trouble as trouble:  # an older build may not have it
                        if "there is no permission" not in str(trouble):
                            raise
                        self.ctl(*words)
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        if self.without:
            self.without.__exit__()
        for program in self.running:
            program.kill()
            program.wait()
        if self.daemon:
            self.daemon.terminate()
            try:
                self.daemon.wait(15)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()
        for name in self.namespaces:
            remove_namespace(name)
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _guards(self, mode):
        # An older build gives every vdevice a userfaultfd(2), and has no option for it.
        return mode == "guarded" and "--allow" in sh(f"{self.build}/bin/vrdmactl", "vdev", "create",
                                                     "--help", ok=True)

    def _sweep(self):
        for name in sh("ip", "netns", "list").split():
            owner = re.fullmatch(PREFIX + r"-(\d+)-[\w-]+", name)
            if owner and not os.path.exists(f"/proc/{owner[1]}"):
                remove_namespace(name)
        for path in glob.glob(f"/dev/shm/{PREFIX}-*"):
            if not os.path.exists(f"/proc/{path.split('-')[1]}"):
                shutil.rmtree(path, ignore_errors=True)
        for version in ("", "*/"):  # of control groups: those of containers
            for path in glob.glob(f"/sys/fs/cgroup/{version}{PREFIX}-*"):
                if not os.path.exists(f"/proc/{os.path.basename(path).split('-')[1]}"):
                    os.rmdir(path)

    def used(self):
        """Seconds of CPU of this driver and all it started, as far as it has ended, and the daemons with
        their processes."""
        children, ticks = {}, {}
        for path in glob.glob("/proc/[0-9]*/stat"):
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    fields = file.read().rsplit(")", 1)[1].split()
            except (FileNotFoundError, ProcessLookupError):  # it has ended
                continue
            pid = int(path.split("/")[2])
            children.setdefault(int(fields[1]), []).append(pid)
            ticks[pid] = sum(map(int, fields[11:15]))  # and of its children that have ended
        pids = [stage.daemon.pid for stage in [self, *self.beside]]
        for pid in pids:
            pids += children.get(pid, [])
        seconds = sum(ticks.get(pid, 0) for pid in pids) / os.sysconf("SC_CLK_TCK")
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
            usage = resource.getrusage(who)
            seconds += usage.ru_utime + usage.ru_stime
        return seconds

    def name(self, side):
        return f"{PREFIX}-{os.getpid()}-{self.of}{side}"

    def enter(self, side):
        # "ip netns exec" and "ip -n" remount /, which fails where it is no mount point.
        return ["nsenter", f"--net=/run/netns/{self.name(side)}", "--"]

    def _join(self, a, b, mtu=4200):
        for side in (a, b):
            sh("ip", "netns", "add", self.name(side))
            self.namespaces.append(self.name(side))
            sh(*self.enter(side), "ip", "link", "set", "lo", "up")
        sh(*self.enter(a), "ip", "link", "add", "eth0", "mtu", str(mtu), "type", "veth", "peer",
           "name", "eth0", "netns", self.name(b), "mtu", str(mtu))
        for side, address in ((a, "10.0.0.1/24"), (b, "10.0.0.2/24")):
            sh(*self.enter(side), "ip", "address", "add", address, "dev", "eth0")
            sh(*self.enter(side), "ip", "link", "set", "eth0", "up")

    def bridge(self, middle, sides):
        """A namespace with a bridge, and one for each side that is attached to it, with a mtu of 1500."""
        for side in (middle, *sides):
            sh("ip", "netns", "add", self.name(side))
            self.namespaces.append(self.name(side))
            sh(*self.enter(side), "ip", "link", "set", "lo", "up")
        sh(*self.enter(middle), "ip", "link", "add", "br0", "type", "bridge")
        sh(*self.enter(middle), "ip", "link", "set", "br0", "up")
        for i, side in enumerate(sides, 1):
            sh(*self.enter(side), "ip", "link", "add", "eth0", "type", "veth", "peer", "name", side, "netns",
               self.name(middle))
            sh(*self.enter(middle), "ip", "link", "set", side, "master", "br0", "up")
            sh(*self.enter(side), "ip", "address", "add", f"10.0.0.{i}/24", "dev", "eth0")
            sh(*self.enter(side), "ip", "link", "set", "eth0", "up")

    def ample(self):
        """Namespace e with a vdevice that may use as much as there can be."""
        if self.name("e") not in self.namespaces:
            self._join("e", "f")
            quota = ",".join(f"{kind}=max" for kind in ("qp", "mr", "mr_bytes", "cq", "cqe"))
            self.ctl("vdev", "create", "ve", "--netns", self.name("e"), "--netdev", "eth0",
                     "--tenant", "ample", "--quota", quota)
        return "e"

    def neighbours(self):
        """Namespaces g, h, i with mediated vdevices of a tenant each: a victim, who might be attacked
        by h in its own fabric and by i in another."""
        if self.name("g") in self.namespaces:
            return
        self._join("g", "h")
        self._join("i", "j")
        for side, fabric in (("g", "shared"), ("h", "shared"), ("i", "other")):
            self.ctl("vdev", "create", "v" + side, "--netns", self.name(side), "--netdev", "eth0",
                     "--tenant", "neighbour-" + side, "--fabric", fabric, "--no-direct")

    def restarts(self):
        """Namespace m with a mediated vdevice of a tenant of its own."""
        if self.name("m") not in self.namespaces:
            self._join("m", "n")
            self.ctl("vdev", "create", "vm", "--netns", self.name("m"), "--netdev", "eth0",
                     "--tenant", "restarts", "--no-direct")
        return "m"

    def network(self, mtu):
        """Two namespaces with a vdevice each, which reach each other by RoCE v2 on the wire, as those of
        two hosts do."""
        sides = NETWORK[mtu]
        if self.name(sides[0]) in self.namespaces:
            return sides
        self._join(*sides, mtu)
        for side in sides:
            self.ctl("vdev", "create", "v" + side, "--netns", self.name(side), "--netdev", "eth0", "--tenant",
                     "host-" + side, "--fabric", "fabric-" + side, "--quota", "qp=4k,cq=4k,cqe=max,mr_bytes=max")
            self.ctl("fabric", "set", "fabric-" + side, "--reach", "network")
        return sides

    def gid_index(self, side, address):
        """Of an IPv4 address of the vdevice."""
        gids = self._json("vdev", "show", "v" + side)[0]["gids"]
        return next((row["index"] for row in gids if row["gid"] == "::ffff:" + address), None)

    def without_stopper(self):
        """A stage whose daemon cannot hold threads, so that it reaches the memory of programs that
        have several."""
        if self.without is None:
            self.without = Stage(self.build, self.of + "reached-", self.programs).__enter__()
            stoppers = self.children(self.without.daemon.pid, "vrdmad-stopper")
            if len(stoppers) != 1:
                raise Trouble("there is no stopper to end")
            os.kill(stoppers[0], signal.SIGKILL)
            self.beside.append(self.without)
        return self.without

    @staticmethod
    def children(pid, name):
        """Process ids of the children of that name."""
        return [int(child) for child in sh("pgrep", "-P", str(pid), "-x", name, ok=True).split()]

    def address(self, side):
        return "10.0.0.2" if side in SECONDS else "10.0.0.1"

    def socket(self, side):
        return self._json("vdev", "show", "v" + side)[0]["socket"]

    def counted(self, vdevice, counter):
        return sum(row["value"] for row in self._json("stats", vdevice) if row["name"] == counter)

    def _json(self, *words):
        return json.loads(self.ctl(*words, "-o", "json"))

    def empty(self, side):
        """Ends what is left in the namespace, and waits until its vdevice is nobody's."""
        for pid in sh("ip", "netns", "pids", self.name(side), ok=True).split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.wait_until(lambda: self.counted("v" + side, "sessions") == 0, 60,
                        f"v{side} has sessions of programs that are dead")

    def crowd(self, count):
        """The name of a namespace with netdevs d0, d1, ... that are up and lead nowhere."""
        name = self.name(f"crowd{count}")
        if name not in self.namespaces:
            sh("ip", "netns", "add", name)
            self.namespaces.append(name)
            lines = []
            for i in range(0, count, 2):
                lines += [f"link add d{i} type veth peer name d{i + 1}", f"link set d{i} up",
                          f"link set d{i + 1} up"]
            subprocess.run(self.enter(f"crowd{count}") + ["ip", "-batch", "-"], check=True, text=True,
                           input="\n".join(lines), stdout=subprocess.DEVNULL)
        return name

    def _start_daemon(self):
        # An older build has no classes.
        known = "--classes" in sh(f"{self.build}/sbin/vrdmad", "--help", ok=True)
        self.options = ["--classes", self.classes] if known else []
        self.log = open(os.path.join(self.folder, "vrdmad.log"), "w+", encoding="utf-8")
        self.launch()
        self.wait_until(self.answers, 20, "vrdmad does not answer on its admin socket")

    def launch(self):
        """Starts vrdmad, the first one or the next, and does not wait for it."""
        self.daemon = subprocess.Popen(
            [f"{self.build}/sbin/vrdmad", "--run-dir", self.run_dir, "--state-dir",
             os.path.join(self.folder, "state"), "--log-level", "warning", *self.options],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            preexec_fn=lambda: die_with_parent(None))

    def answers(self):
        """Whether vrdmad listens on its admin socket."""
        with socket.socket(socket.AF_UNIX) as admin:
            try:
                admin.connect(os.path.join(self.run_dir, "admin.sock"))
            except OSError:
                return False
        self.ctl("vdev", "list")
        return True

    def wait_until(self, true, seconds, else_say):
        end = time.monotonic() + seconds
        while not true():
            if self.daemon.poll() is not None:
                self.log.seek(0)
                raise Trouble("vrdmad ended: " + self.log.read()[-500:])
            if time.monotonic() > end:
                raise Trouble(else_say)
            time.sleep(0.005)

    def ctl(self, *words):
        return sh("env", f"VRDMA_RUN_DIR={self.run_dir}", f"{self.build}/bin/vrdmactl", *words)

    def environment(self, ours):
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/"}
        if ours:
            env |= {"LD_LIBRARY_PATH": f"{self.build}/lib/vrdma", "VRDMA_RUN_DIR": self.run_dir}
        return env

    def start(self, words, side=None, processor=None, ours=False, env=None):
        """Starts a program in a namespace (None: ours), on one processor; it may use vdevices."""
        program = subprocess.Popen(
            (self.enter(side) if side else []) + words, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder,
            env=self.environment(ours) | (env or {}),
            preexec_fn=lambda: die_with_parent(None if processor is None else {processor}))
        self.running.append(program)
        return program

    def finish(self, program, limit=60):
        """What the program printed; Trouble unless it succeeds."""
        try:
            output, _ = program.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            program.kill()
            raise Trouble(f"{' '.join(program.args)}: still runs after {limit} s") from None
        self.running.remove(program)
        if program.returncode:
            raise Trouble(f"{' '.join(program.args)}: status {program.returncode}: "
                          f"{output.strip()[-500:]}")
        return output

    def stop(self, program):
        program.kill()
        program.communicate()
        self.running.remove(program)

    def listening(self, program, port):
        def ready():
            if program.poll() is not None:
                raise Trouble(f"{' '.join(program.args)}: ended before its client came: "
                              f"{program.stdout.read()[-500:]}")
            return listens(program.pid, port)
        self.wait_until(ready, 20, f"{program.args}: the server does not listen")
