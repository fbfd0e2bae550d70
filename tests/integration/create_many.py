#!/usr/bin/env python3
"""create_many.py SOCKET NETNS TENANTS DEV...: creates a vdevice of each tenant on each netdev, by the admin API, because
a process for each would take most of the time."""
import sys

import grpc


def text(number, value):
    """A field of a message (protobuf's wire format)."""
    data = value.encode()
    assert len(data) < 128 and number < 16
    return bytes([number << 3 | 2, len(data)]) + data


def main(socket, netns, tenants, devices):
    channel = grpc.insecure_channel("unix:" + socket)
    create = channel.unary_unary("/vrdma.v1.Admin/CreateVdev", lambda message: message, lambda answer: answer)
    for tenant in range(int(tenants)):
        made = [create.future(text(1, f"t{tenant}-{device}") + text(2, netns) + text(3, device) + text(5, f"tenant{tenant}"))
                for device in devices]
        for one in made:
            one.result(60)


main(*sys.argv[1:4], sys.argv[4:])
