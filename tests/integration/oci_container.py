#!/usr/bin/env python3
"""A container without a container runtime, for tests of hooks.

    oci_container.py [OPTION]... ROOT HOOK ARGUMENT... -- COMMAND...

Makes mount and pid namespaces in the present network namespace, mounts proc, sysfs and a /dev below ROOT,
calls HOOK with the state of the container as a runtime does, before pivot_root(2), and then runs COMMAND
in ROOT. Exits with the status of the hook if that fails, else with that of COMMAND.

    --user                  in a user namespace too
    --annotation KEY=VALUE  of the container
    --env NAME=VALUE        of the container
    --capability NAME       in its bounding set, with --capability NAME of all others; without: none is named
    --twice                 calls the hook a second time
    --volume PATH:PLACE     binds PATH of the host on PLACE in ROOT, which exists
    --shared DIR:PLACE      binds DIR of the host on PLACE in ROOT, in the same peer group
    --no-sysfs              /sys is that of ROOT
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time

NEWNS, NEWUSER, NEWPID = 0x20000, 0x10000000, 0x20000000
NOSUID, NODEV, NOEXEC, BIND, REC, PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
OPEN_TREE, MOVE_MOUNT, AT_FDCWD, OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH = 428, 429, -100, 1, 4
libc = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def unshare(flags):
    check(libc.unshare(flags), "unshare")


def mount(source, target, kind, flags, data=None):
    check(libc.mount(source.encode(), target.encode(), kind.encode() if kind else None, flags, data),
          f"mount on {target}")


def clone(path):
    """A detached mount of a directory, in the peer group of the mount that it is in."""
    tree = libc.syscall(OPEN_TREE, AT_FDCWD, path.encode(), OPEN_TREE_CLONE)
    check(0 if tree >= 0 else -1, f"open_tree {path}")
    return tree


def mount_all(options):
    """What a runtime has mounted when it calls the hooks."""
    root = options.root
    shared = [(clone(volume.split(":")[0]), root + volume.split(":")[1]) for volume in options.shared]
    mount("", "/", None, PRIVATE | REC)
    mount(root, root, None, BIND | REC)
    for name in ("proc", "sys", "dev"):
        os.makedirs(f"{root}/{name}", exist_ok=True)
    mount("proc", f"{root}/proc", "proc", NOSUID | NODEV | NOEXEC)
    if options.no_sysfs:
        pass
    elif options.user:  # which does not own the network namespace
        mount("/sys", f"{root}/sys", None, BIND | REC)
    else:
        mount("sysfs", f"{root}/sys", "sysfs", NOSUID | NODEV | NOEXEC)
    mount("tmpfs", f"{root}/dev", "tmpfs", NOSUID, b"mode=755")
    for name in ("null", "zero", "urandom"):
        open(f"{root}/dev/{name}", "w").close()
        mount(f"/dev/{name}", f"{root}/dev/{name}", None, BIND)
    for volume in options.volume:
        source, place = volume.split(":")
        mount(source, root + place, None, BIND)
    for tree, place in shared:
        os.makedirs(place, exist_ok=True)
        check(libc.syscall(MOVE_MOUNT, tree, b"", AT_FDCWD, place.encode(), MOVE_MOUNT_F_EMPTY_PATH), f"mount on {place}")


def enter_root(root):
    os.chdir(root)
    check(libc.syscall(155, b".", b"."), "pivot_root")
    check(libc.umount2(b".", 2), "umount")
    os.chdir("/")


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


class Pipe:
    def __init__(self):
        self.read_end, self.write_end = os.pipe()

    def tell(self, text=b"x"):
        os.write(self.write_end, text)

    def wait(self):
        os.close(self.write_end)
        return os.read(self.read_end, 64)


def run_init(options, ready, go):
    mount_all(options)
    ready.tell(b"mounted")
    if not go.wait():
        os._exit(99)  # the hook failed
    enter_root(options.root)
    environment = dict(variable.split("=", 1) for variable in options.env)
    os.execvpe(options.command[0], options.command, {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **environment})


def make_container(options):
    """Returns the pid of its init, which waits, and how to let it go on."""
    unshared, mapped, ready, go, pid = Pipe(), Pipe(), Pipe(), Pipe(), Pipe()
    child = os.fork()
    if child == 0:
        if options.user:
            unshare(NEWUSER)
            unshared.tell()
            mapped.wait()
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
        unshare(NEWNS | NEWPID)
        init = os.fork()
        if init == 0:
            run_init(options, ready, go)
        os.close(go.write_end)
        pid.tell(str(init).encode())
        os._exit(os.waitstatus_to_exitcode(os.waitpid(init, 0)[1]) & 255)
    if options.user:
        unshared.wait()
        for kind in ("uid", "gid"):
            write(f"/proc/{child}/{kind}_map", "0 100000 60000\n")
        mapped.tell()
    init = int(pid.wait())
    if ready.wait() != b"mounted":
        sys.exit("oci_container.py: the container could not be made")
    return child, init, go


def call_hook(options, init, bundle):
    state = {"ociVersion": "1.0.2", "id": options.id, "status": "creating", "pid": init, "bundle": bundle,
             "annotations": dict(a.split("=", 1) for a in options.annotation)}
    began = time.monotonic()
    ran = subprocess.run(options.hook, input=json.dumps(state), text=True, cwd=bundle, check=False)
    if options.times:
        with open(options.times, "a", encoding="ascii") as times:
            times.write(f"{(time.monotonic() - began) * 1000:.2f}\n")
    return ran.returncode


def main():
    words = sys.argv[1:]
    parser = argparse.ArgumentParser()
    parser.add_argument("--user", action="store_true")
    parser.add_argument("--annotation", action="append", default=[])
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--capability", action="append", default=[])
    parser.add_argument("--twice", action="store_true")
    parser.add_argument("--volume", action="append", default=[])
    parser.add_argument("--shared", action="append", default=[])
    parser.add_argument("--no-sysfs", action="store_true")
    parser.add_argument("--id", default="c1")
    parser.add_argument("--times", help="a file to which the hook's milliseconds are appended")
    parser.add_argument("root")
    parser.add_argument("hook", nargs=argparse.REMAINDER)
    options = parser.parse_args(words)
    end = options.hook.index("--")
    options.hook, options.command = options.hook[:end], options.hook[end + 1:]
    with tempfile.TemporaryDirectory() as bundle:
        os.chmod(bundle, 0o755)
        process = {"env": options.env}
        if options.capability:
            process["capabilities"] = {"bounding": options.capability}
        write(f"{bundle}/config.json", json.dumps({
            "ociVersion": "1.0.2", "root": {"path": options.root}, "process": process}))
        child, init, go = make_container(options)
        status = 0
        for _ in range(1 + options.twice):
            status = status or call_hook(options, init, bundle)
        if status == 0:
            go.tell()
        os.close(go.write_end)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    sys.exit(status or ended)


if __name__ == "__main__":
    main()
