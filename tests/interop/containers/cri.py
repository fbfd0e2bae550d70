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
import sys

try:
    import grpc
except ImportError:
    sys.exit(77)


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(number, values):
    return b"".join(field(number, value) for value in values)


def pairs(number, words):
    return b"".join(field(number, field(1, key) + field(2, value)) for key, value in (w.split("=", 1) for w in words))


def decode(message):
    """The first value of each field."""
    found, at = {}, 0

    def number():
        nonlocal at
        result = shift = 0
        while True:
            byte = message[at]
            at += 1
            result |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return result

    while at < len(message):
        tag = number()
        if tag & 7 == 0:
            found.setdefault(tag >> 3, number())
        else:
            length = number()
            found.setdefault(tag >> 3, message[at:at + length])
            at += length
    return found


def call(options, method, message):
    channel = grpc.insecure_channel("unix:" + options.socket)
    same = lambda bytes_: bytes_
    answer = channel.unary_unary("/runtime.v1.RuntimeService/" + method, request_serializer=same,
                                 response_deserializer=same)(message, timeout=60)
    return decode(answer)


def pod_config(name, options):
    metadata = field(1, name) + field(2, "uid-" + name) + field(3, "default")
    linux = field(1, options.cgroup) if options.cgroup else b""
    return field(1, metadata) + field(2, name) + pairs(7, options.annotation) + field(8, linux)


def pod(options, name, handler):
    answer = call(options, "RunPodSandbox", field(1, pod_config(name, options)) + field(2, handler))
    print(answer[1].decode())


def container(options, sandbox, name, image):
    config = field(1, field(1, name)) + field(2, field(1, image)) + fields(3, options.command)
    config += pairs(6, options.env) + pairs(10, options.annotation)
    config += b"".join(field(17, field(1, device)) for device in options.cdi)
    request = field(1, sandbox) + field(2, config) + field(3, pod_config(sandbox, options))
    created = call(options, "CreateContainer", request)[1].decode()
    call(options, "StartContainer", field(1, created))
    print(created)


def address(options, sandbox):
    status = decode(call(options, "PodSandboxStatus", field(1, sandbox))[1])
    print(decode(status[5])[1].decode())


def execute(options, name):
    answer = call(options, "ExecSync", field(1, name) + fields(2, options.command) + field(3, 60))
    sys.stdout.write(answer.get(1, b"").decode(errors="replace"))
    sys.stderr.write(answer.get(2, b"").decode(errors="replace"))
    sys.exit(answer.get(3, 0))


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
