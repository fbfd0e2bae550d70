"""exported_vmm.py SOCKET: a VMM and the driver of its guest, at the socket of `vrdmactl vdev export`.

Does what each line of standard input says, and answers with a line of JSON: what it has done so far, by the names that
`vrdmactl vdev show -j` has for it.
"""
import array
import fcntl
import json
import os
import socket
import struct
import sys

VERSION, MAP, SET_IRQS, READ, WRITE = 1, 2, 8, 9, 10  # messages of vfio-user
REGISTERS, DOORBELLS, CONFIG, MSIX = 1, 2, 7, 2
LOW, HIGH, REQUEST, ERROR, MASK = 0x04, 0x08, 0x10, 0x14, 0x1C
PAGE, PAGES = 4096, 32
REGION, COMMAND, ANSWER = PAGE, 2 * PAGE, 3 * PAGE

done = dict.fromkeys(("doorbells", "registers", "commands", "interrupts", "attaches_refused", "commands_refused",
                      "doorbells_refused"), 0)
ram = os.memfd_create("ram", os.MFD_ALLOW_SEALING)
os.ftruncate(ram, PAGES * PAGE)
fcntl.fcntl(ram, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
eventfds = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(3)]
vmm = socket.socket(socket.AF_UNIX)
attached = False


def receive(size):
    data = b""
    while len(data) < size:
        part = vmm.recv(size - len(data))
        if not part:
            sys.exit("the device has closed the connection")
        data += part
    return data


def call(message, payload, fds=()):
    """The payload of the answer."""
    beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    vmm.sendmsg([struct.pack("<HHIII", 7, message, 16 + len(payload), 0, 0) + payload], beside)
    _, _, size, flags, error = struct.unpack("<HHIII", receive(16))
    if flags & 0x20:
        sys.exit(f"message {message} ends with error {error}")
    return receive(size - 16)


def write(region, offset, value):
    call(WRITE, struct.pack("<QIII", offset, region, 4, value))
    done["doorbells" if region == DOORBELLS and attached else "registers"] += 1


def failed():
    answer = call(READ, struct.pack("<QII", ERROR, REGISTERS, 4))
    done["registers"] += 1
    return struct.unpack_from("<I", answer, 16)[0] != 0


def connect():
    vmm.connect(sys.argv[1])
    call(VERSION, struct.pack("<HH", 0, 1) + b'{"capabilities":{}}\0')
    call(MAP, struct.pack("<IIQQQ", 32, 3, 0, 0, PAGES * PAGE), [ram])
    for vector, eventfd in enumerate(eventfds):
        call(SET_IRQS, struct.pack("<IIIII", 20, 4 | 32, MSIX, vector, 1), [eventfd])


def attach(version, region=REGION):
    """The driver's version; the address of its shared region."""
    global attached
    # Each ring: a page of addresses of pages of addresses, of four pages.
    for first in (4, 10):
        os.pwrite(ram, struct.pack("<Q", (first + 1) * PAGE), first * PAGE)
        os.pwrite(ram, struct.pack("<4Q", *((first + 2 + i) * PAGE for i in range(4))), (first + 1) * PAGE)
    os.pwrite(ram, struct.pack("<IIIIQQIIQIIQ", version, 0, 0, 0, COMMAND, ANSWER, 4, 0, 4 * PAGE, 4, 0, 10 * PAGE), REGION)
    write(REGISTERS, LOW, region)
    write(REGISTERS, HIGH, 0)
    write(REGISTERS, MASK, 0)
    attached = not failed()
    done["attaches_refused"] += not attached


def command(number):
    os.pwrite(ram, struct.pack("<QII", 1, number, 0) + bytes(64), COMMAND)
    write(REGISTERS, REQUEST, 0)
    done["commands"] += 1
    done["commands_refused"] += failed()


def doorbell(value):
    """Of a queue pair that there is not."""
    write(DOORBELLS, 0, value)
    done["doorbells_refused"] += attached


def answer():
    for eventfd in eventfds:
        try:
            done["interrupts"] += os.eventfd_read(eventfd)
        except BlockingIOError:
            pass
    print(json.dumps(done), flush=True)


for line in sys.stdin:
    words = line.split()
    globals()[words[0]](*(int(word, 0) for word in words[1:]))
    answer()
