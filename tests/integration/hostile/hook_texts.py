#!/usr/bin/env python3
"""A user's hook that writes what it likes into the texts of its requests, for hook_state.sh: hook_texts.py SOCKET PID COMMAND

    texts FILE   sets a container up with each text of FILE, a line each with escapes as in Python, in each field that a
                 user's hook may fill; prints "taken" or "refused REASON" for each
    churn N      N times, with an id of the greatest length each: sets the container up, and ends without having finished
    ids N        N ids of the one process, which stay; prints how many were taken
"""
import os
import sys

sys.argv, words = [sys.argv[0], sys.argv[1]], sys.argv[2:]
import hook_client  # noqa: E402

FIELDS = {"container": 4, "pod": 5, "pod_namespace": 6, "pod_name": 7, "pod_uid": 8, "container_name": 9}


def ask(pid, fields, finish):
    """Returns the refusal, or None."""
    values = [4, hook_client.SET_UP, 0, 0] + [b""] * 13
    for name, text in fields.items():
        values[FIELDS[name]] = text
    link = hook_client.connect()
    files = [os.open(f"/proc/{pid}/ns/net", os.O_RDONLY), os.pidfd_open(pid)]
    try:
        hook_client.socket.send_fds(link, [hook_client.REQUEST.pack(*values)], files)
        answer = hook_client.ANSWER.unpack(link.recv(hook_client.ANSWER.size))
        if answer[0] == 0 and finish:
            link.send(hook_client.request(hook_client.DONE))
            link.recv(hook_client.ANSWER.size)
        return hook_client.text(answer[-1]) if answer[0] != 0 else None
    finally:
        for each in files:
            os.close(each)
        link.close()


def main():
    pid, command, argument = int(words[0]), words[1], words[2]
    if command == "texts":
        with open(argument, encoding="ascii") as file:
            for line in file.read().splitlines():
                refusal = ask(pid, dict.fromkeys(FIELDS, line.encode().decode("unicode_escape").encode("latin-1")), True)
                print(f"refused {refusal}" if refusal else "taken", flush=True)
    elif command == "churn":
        for i in range(int(argument)):
            ask(pid, {"container": b"%0127d" % i, "pod": b"p" * 127}, False)
    elif command == "ids":
        print(sum(ask(pid, {"container": b"%0127d" % i}, True) is None for i in range(int(argument))), flush=True)


main()
