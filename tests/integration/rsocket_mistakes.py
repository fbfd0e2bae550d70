"""rsocket_mistakes.py stream|datagram ADDRESS PORT: prints how a socket answers each mistake."""

import ctypes
import errno
import os
import select
import socket
import sys
import threading


def attempt(what, call, *arguments):
    try:
        call(*arguments)
        print(f"{what}: nothing")
    except OSError as error:
        print(f"{what}: {errno.errorcode[error.errno]}")


def call(name, *arguments):
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)


def invalid_timeouts(sock):
    """Waits for `sock` by each call with invalid timeouts."""
    fd = sock.fileno()
    read = (ctypes.c_ulong * 16)()
    read[fd // 64] |= 1 << fd % 64
    polled = (ctypes.c_int * 2)(fd, 1)  # POLLIN
    events = (ctypes.c_char * 12)()
    message = (ctypes.c_long * 8)()
    with select.epoll() as waiting:
        waiting.register(fd, select.EPOLLIN)
        for parts in (-1, 0), (0, -1), (0, 1_000_000_000):
            time = (ctypes.c_long * 2)(*parts)
            attempt(f"ppoll {parts}", call, "ppoll", polled, ctypes.c_ulong(1), time, None)
            attempt(f"pselect {parts}", call, "pselect", fd + 1, read, None, None, time, None)
            attempt(f"epoll_pwait2 {parts}", call, "epoll_pwait2", waiting.fileno(), events, 1, time, None)
            attempt(f"recvmmsg {parts}", call, "recvmmsg", fd, message, 1, 0, time)
            if parts[1] <= 0:  # select() accepts more than 999,999 microseconds
                attempt(f"select {parts}", call, "select", fd + 1, read, None, None, time)


def stream(address, port):
    listener = socket.socket()
    attempt("the peer of none", listener.getpeername)
    attempt("to receive from none", listener.recv, 1)
    attempt("to send to none", listener.send, b"x")
    attempt("to shut down none", listener.shutdown, socket.SHUT_WR)
    attempt("to accept without listening", listener.accept)
    attempt("an unknown option", listener.setsockopt, socket.SOL_SOCKET, 9999, 1)
    attempt("an unknown level", listener.getsockopt, 9999, 1)
    attempt("an unknown option of TCP", listener.setsockopt, socket.IPPROTO_TCP, 9999, 1)
    attempt("a short option", listener.setsockopt, socket.SOL_SOCKET, socket.SO_KEEPALIVE, b"x")
    attempt("a stranger's address", listener.bind, ("192.0.2.1", port))
    listener.close()
    listener = socket.socket()
    attempt("to bind", listener.bind, (address, port))
    attempt("to bind again", listener.bind, (address, port))
    attempt("to bind where one is", socket.socket().bind, (address, port))
    attempt("to listen", listener.listen)
    attempt("to listen again", listener.listen)
    listener.setblocking(False)
    attempt("to accept nobody", listener.accept)
    attempt("to connect a listener", listener.connect, (address, port))
    listener.setblocking(True)
    server = []
    accepting = threading.Thread(target=lambda: server.append(listener.accept()[0]))
    accepting.start()
    client = socket.create_connection((address, port))
    accepting.join()
    attempt("to connect again", client.connect, (address, port))
    attempt("to put nothing in its place", os.dup2, 60000, client.fileno())
    attempt("to bind a connection", client.bind, (address, port + 1))
    attempt("to listen by a connection", client.listen)
    attempt("to shut down what there is not", client.shutdown, 5)
    attempt("to shut down", client.shutdown, socket.SHUT_WR)
    attempt("to send after that", client.send, b"x")
    attempt("what is not there yet", client.recv, 1, socket.MSG_DONTWAIT)
    server[0].close()
    invalid_timeouts(listener)
    attempt("to shut down a listener", listener.shutdown, socket.SHUT_RDWR)
    attempt("to accept after that", listener.accept)


def datagram(address, port):
    here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    attempt("the peer of none", here.getpeername)
    attempt("to send to none", here.send, b"x")
    attempt("to shut down none", socket.socket(socket.AF_INET, socket.SOCK_DGRAM).shutdown, 1)
    attempt("to listen", here.listen)
    attempt("to accept", here.accept)
    attempt("an option of TCP", here.setsockopt, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    attempt("a short option", here.setsockopt, socket.SOL_SOCKET, socket.SO_REUSEADDR, b"x")
    attempt("port 0", here.sendto, b"x", (address, 0))
    here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    attempt("a stranger's address", here.bind, ("192.0.2.1", port))
    here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    attempt("to bind", here.bind, (address, port))
    attempt("to bind again", here.bind, (address, port))
    attempt("to bind where one is", socket.socket(type=socket.SOCK_DGRAM).bind, (address, port))
    attempt("what is not there yet", here.recv, 1, socket.MSG_DONTWAIT)
    attempt("out of band", here.sendto, b"x", socket.MSG_OOB, (address, port))
    attempt("to shut down what there is not", here.shutdown, 5)
    attempt("to connect to itself", here.connect, (address, port))
    attempt("to connect again", here.connect, (address, port + 1))
    print(here.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_DGRAM)
    print(here.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL) == socket.IPPROTO_UDP)
    attempt("to shut down", here.shutdown, socket.SHUT_WR)
    attempt("to send after that", here.send, b"x")


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
