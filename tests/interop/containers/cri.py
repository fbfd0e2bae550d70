#!/usr/bin/python3
"""A client of a container engine's CRI (runtime.v1.RuntimeService of Kubernetes), of which Debian has none.

    cri.py SOCKET pod NAME HANDLER [OPTION]...                      prints the id of a sandbox
    cri.py SOCKET container POD NAME IMAGE [OPTION]... -- COMMAND   starts a container in it and prints its id
    cri.py SOCKET address POD                                       prints the IP address of a sandbox
    cri.py SOCKET exec CONTAINER -- COMMAND                         runs COMMAND in it, with its output and exit status
    cri.py SOCKET remove POD                                        with its containers

    --annotation KEY=VALUE, --env NAME=VALUE, --cdi DEVICE, --cgroup GROUP (of the pod)

The messages are written by their numbers of fields, without generated code: api.proto of k8s.io/cri-api."""
import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../integration/kubernetes"))
import messages  # without grpc it skips the test
from messages import field, fields, grpc


def pairs(number, words):
    return messages.pairs(number, dict(word.split("=", 1) for word in words))


def call(options, method, message):
    channel = messages.channel_to(options.socket)
    return messages.call(channel, "/runtime.v1.RuntimeService/" + method, message, timeout=60)


def pod_config(name, options):
    metadata = field(1, name) + field(2, "uid-" + name) + field(3, "default")
    linux = field(1, options.cgroup) if options.cgroup else b""
    return field(1, metadata) + field(2, name) + pairs(7, options.annotation) + field(8, linux)


def pod(options, name, handler):
    answer = call(options, "RunPodSandbox", field(1, pod_config(name, options)) + field(2, handler))
    print(answer.text(1))


def container(options, sandbox, name, image):
    config = field(1, field(1, name)) + field(2, field(1, image)) + fields(3, options.command)
    config += pairs(6, options.env) + pairs(10, options.annotation)
    config += fields(17, [field(1, device) for device in options.cdi])
    request = field(1, sandbox) + field(2, config) + field(3, pod_config(sandbox, options))
    created = call(options, "CreateContainer", request).text(1)
    call(options, "StartContainer", field(1, created))
    print(created)


def address(options, sandbox):
    status = call(options, "PodSandboxStatus", field(1, sandbox)).message(1)
    print(status.message(5).text(1))


def execute(options, name):
    answer = call(options, "ExecSync", field(1, name) + fields(2, options.command) + field(3, 60))
    sys.stdout.write(answer.text(1))
    sys.stderr.write(answer.text(2))
    sys.exit(answer.number(3))


def remove(options, sandbox):
    call(options, "StopPodSandbox", field(1, sandbox))
    call(options, "RemovePodSandbox", field(1, sandbox))


def main():
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser()
    for name in ("annotation", "env", "cdi"):
        parser.add_argument("--" + name, action="append", default=[])
    parser.add_argument("--cgroup")
    parser.add_argument("socket")
    parser.add_argument("call")
    parser.add_argument("words", nargs="*")
    options = parser.parse_intermixed_args(words[:end])
    options.command = words[end + 1:]
    calls = {"pod": pod, "container": container, "address": address, "exec": execute, "remove": remove}
    try:
        calls[options.call](options, *options.words)
    except grpc.RpcError as error:
        sys.exit(f"{options.call}: {error.details()}")


main()
