"""What UCX gives two containers: over vdevices, and over what they would use instead.

    container "first"           bridge           container "second"
  +-------------------+                        +-------------------+
  | ucx_perftest      |                        |      ucx_perftest |
  |   vrdma0 --- eth0 |======= veth, br0 ======| eth0 --- vrdma0   |
  | 10.0.0.1          |                        |          10.0.0.2 |
  +-------------------+                        +-------------------+

runc runs them with the namespaces and capabilities that podman asks of it, and without a seccomp filter.
vrdma-oci-hook gives them their vdevices. Their image is the host's /usr, read-only.
"""

import json
import os
import shutil
from dataclasses import dataclass

import probes
from stage import Trouble, listens, sh

SIDES = ("first", "second")
CLASSES = "[team]\ntenant = team\n[guarded]\ntenant = guarded\nallow = userfaultfd\n"
CAPABILITIES = ["CAP_" + name for name in (
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID",
    "SYS_CHROOT")]


@dataclass
class Way:
    environment: dict  # of UCX
    device: str = None  # the class of the containers' vdevices
    share: bool = False  # as with --ipc=host --pid=host


OVER_VERBS = probes.UCX_OVER_VERBS | {"UCX_NET_DEVICES": "vrdma0:1"}
ONE_TENANT = ("vdevices of one tenant", "vdevices of one tenant, with userfaultfd(2)")
POSIX, TCP = "posix shared memory, --ipc=host --pid=host", "TCP"
WAYS = {
    ONE_TENANT[0]: Way(OVER_VERBS, "team"),
    ONE_TENANT[1]: Way(OVER_VERBS, "guarded"),
    "vdevices of two tenants": Way(OVER_VERBS, "default"),
    POSIX: Way({"UCX_TLS": "posix,self"}, share=True),
    "UCX's own choice, --ipc=host --pid=host": Way({}, share=True),
    TCP: Way({"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}),
}


@dataclass
class Test:
    title: str
    unit: str
    test: str  # as ucx_perftest has it
    size: int
    iterations: int
    column: int  # of ucx_row()
    goal: tuple  # for the ratio of vdevices of one tenant to POSIX


def missing():
    """The reason why nothing can be measured here, or None."""
    for program in ("runc", "ucx_perftest"):
        if not shutil.which(program):
            return f"{program} is not installed"
    return None


def prepare(stage):
    """The classes, the bridge, and a root for each container."""
    if stage.name("bridge") in stage.namespaces:
        return
    with open(stage.classes, "w", encoding="ascii") as file:
        file.write(CLASSES)
    stage.bridge("bridge", SIDES)
    for side in SIDES:
        root = os.path.join(stage.folder, side, "root")
        for name in ("dev", "etc", "opt", "proc", "run", "sys", "tmp", "usr", "var"):
            os.makedirs(f"{root}/{name}")
        for name in ("bin", "sbin", "lib", "lib64"):
            os.symlink(f"usr/{name}", f"{root}/{name}")
        for name in ("ld.so.cache", "passwd"):
            shutil.copy(f"/etc/{name}", f"{root}/etc")


def mounts(share):
    own = {"destination": "/dev/shm", "type": "tmpfs", "source": "shm",
           "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]}
    hosts = {"destination": "/dev/shm", "type": "bind", "source": "/dev/shm", "options": ["rbind"]}
    return [
        {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]},
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs",
         "options": ["nosuid", "noexec", "nodev", "ro"]},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
         "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
        hosts if share else own,
    ]


def configuration(stage, side, way, words):
    """config.json of the Open Container Initiative."""
    kinds = ["mount", "uts"] + ([] if way.share else ["ipc", "pid"])
    config = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0}, "cwd": "/", "args": words,
            "env": ["PATH=/usr/sbin:/usr/bin"] + [f"{name}={value}" for name, value in way.environment.items()],
            "capabilities": {kind: CAPABILITIES for kind in ("bounding", "effective", "permitted")},
        },
        "root": {"path": "root"},
        "hostname": side,
        "mounts": mounts(way.share),
        "linux": {
            "namespaces": [{"type": kind} for kind in kinds]
                          + [{"type": "network", "path": f"/run/netns/{stage.name(side)}"}],
            "cgroupsPath": "/" + stage.name(side),
        },
    }
    if way.device:
        hook = f"{stage.build}/lib/vrdma/vrdma-oci-hook"
        called = {"path": hook, "args": [hook, "--run-dir", stage.run_dir]}
        config["hooks"] = {"createRuntime": [called | {"args": called["args"] + ["createRuntime", way.device]}],
                           "poststop": [called | {"args": called["args"] + ["poststop"]}]}
    return config


def runc(stage):
    return ["runc", "--root", os.path.join(stage.folder, "runc")]


def start(stage, side, processor, way, words):
    bundle = os.path.join(stage.folder, side)
    with open(f"{bundle}/config.json", "w", encoding="ascii") as file:
        json.dump(configuration(stage, side, way, ["taskset", "-c", str(processor), *words]), file)
    if os.path.exists(f"{bundle}/pid"):
        os.remove(f"{bundle}/pid")
    return stage.start(runc(stage) + ["run", "--pid-file", f"{bundle}/pid", "--bundle", bundle, stage.name(side)],
                       ours=bool(way.device))


def wait_for_server(stage, program):
    pid_file = os.path.join(stage.folder, SIDES[0], "pid")  # which runc renames to this when it is whole

    def ready():
        if program.poll() is not None:
            raise Trouble(f"the container of the server ended: {program.stdout.read().strip()[-500:]}")
        try:
            with open(pid_file, encoding="ascii") as file:
                return listens(file.read(), probes.UCX_PORT)
        except OSError:  # not yet, or no longer
            return False
    stage.wait_until(ready, 20, "the server in a container does not listen")


def probe(test, way):
    words = ["ucx_perftest", "-t", test.test, "-s", str(test.size), "-n", str(test.iterations), "-w",
             str(max(test.iterations // 10, 5)), "-f", "-v"]

    def run(stage):
        prepare(stage)
        try:
            server = start(stage, SIDES[0], 0, way, words)
            wait_for_server(stage, server)
            output = stage.finish(start(stage, SIDES[1], 1, way, words + ["10.0.0.1"]))
            stage.finish(server)
        finally:  # also when the programs did not end by themselves
            for side in SIDES:
                sh(*runc(stage), "delete", "--force", stage.name(side), ok=True)
        return probes.ucx_row(output)[test.column]
    return run


def measured(stage, tests, measure):
    """The results' rows; measure(test, probes) returns {name: [a number a round]} and the loads of the rounds."""
    reason = missing()
    if reason:
        raise Trouble(reason)
    rows, loads = [], []
    for test in tests:
        numbers, around = measure(test, {name: probe(test, way) for name, way in WAYS.items()})
        rows.append({"title": test.title, "unit": test.unit, "goal": list(test.goal), "values": numbers,
                     "loads": around})
        loads += around
    return {"containers": rows, "loads": loads}
