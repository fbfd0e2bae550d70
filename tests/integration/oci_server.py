#!/usr/bin/env python3
"""Answers hooks as vrdmad does, or as the test wants: oci_server.py SOCKET ANSWER LOG

ANSWER is a JSON file, read for each request: sockets, vdevices ([name, tree] each), error, reason; or
"silent", or "end" (the connection). LOG gets a line for each request, and one for each connection that ends
before its kDone.
"""

import json
import os
import socket
import struct
import sys

REQUEST = struct.Struct("=IIII128s128s64s256s64s64s64s64s64s16s64s256s256s")
VDEVICE = struct.Struct("=64s256s")
SET_UP, DONE, ENDED, FAILED = 1, 2, 3, 4
path, answer_path, log_path = sys.argv[1:]


def log(line):
    with open(log_path, "a", encoding="ascii") as file:
        file.write(line + "\n")


def text(field):
    return field.rstrip(b"\0").decode("ascii")


def answer_of(spec):
    vdevices = [VDEVICE.pack(name.encode(), tree.encode()) for name, tree in spec.get("vdevices", [])]
    vdevices += [bytes(VDEVICE.size)] * (8 - len(vdevices))
    return struct.pack("=iIII256s256s", spec.get("error", 0), len(spec.get("vdevices", [])),
                       spec.get("memory_reached", 0), 0, b"", spec.get("sockets", "").encode()) + b"".join(vdevices) + struct.pack(
                           "512s", spec.get("reason", "").encode())


def describe(fds):
    """Whether they are a network namespace and a process in it."""
    with open(f"/proc/self/fdinfo/{fds[1]}", encoding="ascii") as info:
        pid = next(line.split()[1] for line in info if line.startswith("Pid:"))
    try:
        same = os.stat(f"/proc/{pid}/ns/net").st_ino == os.fstat(fds[0]).st_ino
    except FileNotFoundError:
        return "the process has ended"
    return "same netns" if same else "another netns"


class Conversation:
    """With the hook of one container."""

    def __init__(self, connection):
        self.connection = connection
        self.pending = None  # the container whose set-up has not ended

    def answer_all(self):
        while True:
            message, fds, _, _ = socket.recv_fds(self.connection, 4096, 8)
            if not message:
                return
            self.note(message, fds)
            for fd in fds:
                os.close(fd)
            with open(answer_path, encoding="ascii") as file:
                spec = json.load(file)
            if spec.get("end"):
                return
            if not spec.get("silent"):
                self.connection.send(answer_of(spec))

    def note(self, message, fds):
        version, op, network_admin, _, container, pod, *of_pod, device_class, claim, share, netdev, name, quota, reason = REQUEST.unpack(message)
        assert version == 4
        if op == SET_UP:
            self.pending = text(container)
            wishes = ",".join(text(field) for field in (netdev, name, quota))
            log(f"set up {self.pending} pod={text(pod)} class={text(device_class)} wishes={wishes}: {describe(fds)}")
            if network_admin:
                log("  network_admin")
            if text(claim) or text(share):
                log(f"  by claim {text(claim)} share {text(share)}")
            if any(text(field) for field in of_pod):
                log("  of pod " + " ".join(text(field) for field in of_pod))
        elif op == DONE:
            log(f"done {self.pending}")
            self.pending = None
        elif op == FAILED:
            log(f"failed {text(container)}: {text(reason)}")
        else:
            log(f"ended {text(container)}")


def main():
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen(16)
    while True:
        with listener.accept()[0] as connection:
            conversation = Conversation(connection)
            try:
                conversation.answer_all()
            except ConnectionError:  # the hook was killed
                pass
            if conversation.pending:
                log(f"undone {conversation.pending}")


if __name__ == "__main__":
    main()
