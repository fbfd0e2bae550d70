"""A hook's end of R/hook.sock (api/hook_wire.h).

    hook_client.py SOCKET COMMAND [WORD...] [-- COMMAND [WORD...]]...

Carries the commands out on one connection, and prints one line for each answer: "ok NAME TREE SOCKETS", or
"refused REASON". Exits with 1 at the first refusal or at the end of the connection.

    setup ID PID [KEY=VALUE...]   KEY: class, claim, share, pod, pod_namespace, pod_name, pod_uid, container_name,
                                  netdev, name, quota, network_admin (yes); or what to pass instead of the process's
                                  own: netns=FILE, pidfd=FILE
    done
    ended ID
    failed ID REASON
    hold FILE                     makes FILE and waits until it is removed
    raw LENGTH                    a message of that many bytes, all 255
    crowd N                       opens N more connections
    as UID                        root: continues on a new connection, of that user
    slow N                        sends N messages, each with a socket whose close takes a minute
"""
import array
import os
import socket
import struct
import sys
import time

REQUEST = struct.Struct("=IIII128s128s64s256s64s64s64s64s64s16s64s256s256s")
ANSWER = struct.Struct("=iIII256s256s" + "64s256s" * 8 + "512s")
assert REQUEST.size == 1504 and ANSWER.size == 3600
SET_UP, DONE, ENDED, FAILED = 1, 2, 3, 4


def text(raw):
    return raw.split(b"\0")[0].decode()


def connect():
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link.connect(sys.argv[1])
    return link


def ask(link, message, fds=()):
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    try:
        link.sendmsg([message], ancillary)
    except BrokenPipeError:  # refused at once: the answer is there
        pass
    answer = link.recv(ANSWER.size + 1)
    if not answer:
        sys.exit("the connection ends")
    fields = ANSWER.unpack(answer)
    if fields[0] != 0:
        print("refused", text(fields[-1]), flush=True)
        sys.exit(1)
    print("ok", text(fields[6]), text(fields[7]), text(fields[5]), *["reached"] * fields[2], flush=True)


def request(op, container="", keys=None):
    keys = keys or {}
    of = lambda key: keys.get(key, "").encode()
    network_admin = keys.get("network_admin") == "yes"
    return REQUEST.pack(4, op, network_admin, 0, container.encode(), of("pod"), of("pod_namespace"), of("pod_name"), of("pod_uid"),
                        of("container_name"), of("class"), of("claim"), of("share"), of("netdev"), of("name"), of("quota"),
                        of("reason"))


def set_up(link, container, pid, *words):
    keys = dict(word.split("=", 1) for word in words)
    open_file = lambda path: os.open(path, os.O_RDONLY)
    netns = open_file(keys.get("netns", f"/proc/{pid}/ns/net"))
    pidfd = open_file(keys["pidfd"]) if "pidfd" in keys else os.pidfd_open(int(pid))
    ask(link, request(SET_UP, container, keys), [netns, pidfd])
    os.close(netns)
    os.close(pidfd)


def lingering_socket(listener):
    """Data that its peer does not read is left when it is closed."""
    near = socket.create_connection(listener.getsockname())
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
    near.setblocking(False)
    try:
        while True:
            near.send(b"x" * 65536)
    except BlockingIOError:
        near.setblocking(True)
    return near


def slow(count):
    """A process sends each and ends, which does not linger, so that the last close is vrdmad's."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=count)
    kept = [listener]
    for _ in range(count):
        link = connect()
        child = os.fork()
        if child == 0:
            try:
                near = lingering_socket(listener)
                rights = array.array("i", [near.fileno()] * 2)
                link.sendmsg([request(SET_UP, "slow")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        kept.append(link)
    return kept


def hold(path):
    open(path, "w").close()
    while os.path.exists(path):
        time.sleep(0.02)


def main():
    link = connect()
    crowd = []
    commands = [[]]
    for word in sys.argv[2:]:
        if word == "--":
            commands.append([])
        else:
            commands[-1].append(word)
    for name, *words in commands:
        if name == "setup":
            set_up(link, *words)
        elif name == "done":
            ask(link, request(DONE))
        elif name == "ended":
            ask(link, request(ENDED, words[0]))
        elif name == "failed":
            ask(link, request(FAILED, words[0], {"reason": words[1]}))
        elif name == "hold":
            hold(words[0])
        elif name == "raw":
            ask(link, b"\xff" * int(words[0]))
        elif name == "slow":
            crowd += slow(int(words[0]))
        elif name == "crowd":
            crowd += [connect() for _ in range(int(words[0]))]
        elif name == "as":
            crowd.append(link)
            os.seteuid(0)
            os.seteuid(int(words[0]))
            link = connect()
        else:
            sys.exit(f"there is no command {name}")


if __name__ == "__main__":
    main()
