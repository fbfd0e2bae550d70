"""A server that sends back what it gets, and its clients, with ordinary sockets.

rsocket_echo.py serve ADDRESS PORT CLIENTS
rsocket_echo.py loop ADDRESS PORT CLIENTS: the same by asyncio, which waits by epoll
rsocket_echo.py call ADDRESS PORT blocking|nonblocking|half|leave|silent|loop|edges|copies
"""
import asyncio
import errno
import hashlib
import os
import select
import socket
import sys

SIZE = 3_000_000


def serve(address, port, clients):
    """All clients by one poll(), without blocking, until so many have been served."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, port))
    listener.listen()
    listener.setblocking(False)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    sockets = {}
    served = 0
    while served < clients:
        for fd, _ in poll.poll():
            if fd == listener.fileno():
                try:
                    client, peer = listener.accept()
                except BlockingIOError:
                    continue
                assert peer[:2] == client.getpeername()[:2]
                client.setblocking(False)
                sockets[client.fileno()] = [client, b"", False]
                poll.register(client, select.POLLIN)
                continue
            entry = sockets[fd]
            client = entry[0]
            try:
                if not entry[2] and len(entry[1]) < 100_000:
                    data = client.recv(50_000)
                    entry[1] += data
                    entry[2] = not data
            except BlockingIOError:
                pass
            try:
                if entry[1]:
                    entry[1] = entry[1][client.send(entry[1]) :]
            except BlockingIOError:
                pass
            if entry[2] and not entry[1]:
                poll.unregister(fd)
                del sockets[fd]
                client.close()
                served += 1
                continue
            wanted = select.POLLOUT if entry[1] else 0
            if not entry[2] and len(entry[1]) < 100_000:
                wanted |= select.POLLIN
            poll.modify(fd, wanted)


async def serve_by_loop(address, port, clients):
    served = asyncio.Semaphore(0)

    async def echo(reader, writer):
        while data := await reader.read(50_000):
            writer.write(data)
            await writer.drain()
        writer.close()
        await writer.wait_closed()
        served.release()

    async with await asyncio.start_server(echo, address, port):
        for _ in range(clients):
            await served.acquire()


async def call_by_loop(address, port):
    async def one(data):
        reader, writer = await asyncio.open_connection(address, port)

        async def send():
            writer.write(data)
            await writer.drain()
            writer.write_eof()

        sending = asyncio.create_task(send())
        got = await reader.read(-1)
        await sending
        assert got == data
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(one(os.urandom(SIZE // 10)) for _ in range(3)))


def by_edges(client, data):
    """As exchange(), by epoll, which tells each change once."""
    client.setblocking(False)
    epoll = select.epoll()
    epoll.register(client, select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
    sent = 0
    got = b""
    looks = 0
    while len(got) < len(data):
        looks += 1
        events = epoll.poll(20)
        assert events, "an edge was not told"
        for _, is_ in events:
            try:
                while is_ & select.EPOLLOUT and sent < len(data):
                    sent += client.send(data[sent : sent + 200_000])
            except BlockingIOError:
                pass
            try:
                while is_ & select.EPOLLIN:
                    piece = client.recv(70_000)
                    assert piece, "the end before all had come back"
                    got += piece
            except BlockingIOError:
                pass
    quiet = (not epoll.poll(0.1) for _ in range(20))  # what had become free may still be told
    assert any(quiet), "told again and again, though nothing has happened"
    assert looks < 100_000, "it does not sleep"
    epoll.modify(client, select.EPOLLOUT | select.EPOLLONESHOT)
    assert epoll.poll(1) and not epoll.poll(0.1), "told more than once"
    epoll.unregister(client)
    assert not epoll.poll(0.1)
    epoll.close()
    return got


def by_copies(client):
    copy = client.dup()
    client.close()
    number = os.dup(copy.fileno())
    os.dup2(copy.fileno(), number)
    copy.sendall(b"through a copy")
    copy.close()
    got = b""
    while len(got) < 14:
        got += os.read(number, 100)
    assert got == b"through a copy"
    last = socket.socket(fileno=number)
    last.sendall(b"and the last")
    assert last.recv(100)
    last.close()


def connect(address, port):
    client = socket.create_connection((address, port), timeout=30)
    assert client.getpeername()[:2] == (address, port)
    return client


def exchange(client, data):
    """Sends and receives at once, by select()."""
    client.setblocking(False)
    sent = 0
    got = b""
    while len(got) < len(data):
        readable, writable, _ = select.select([client], [client] if sent < len(data) else [], [])
        if writable:
            sent += client.send(data[sent : sent + 200_000])
        if readable:
            piece = client.recv(70_000)
            assert piece, "the end before all had come back"
            got += piece
    return got


def call(address, port, way):
    if way == "loop":
        return asyncio.run(call_by_loop(address, port))
    client = connect(address, port)
    data = os.urandom(SIZE)
    if way == "blocking":
        client.settimeout(None)
        for size in (1, 100, 30_000):
            client.sendall(data[:size])
            got = b""
            while len(got) < size:
                piece = client.recv(size - len(got))
                assert piece, "the end before all had come back"
                got += piece
            assert got == data[:size]
    elif way == "nonblocking":
        try:
            client.setblocking(False)
            client.recv(1)
            raise AssertionError("there was nothing to read")
        except BlockingIOError:
            pass
        got = exchange(client, data)
        assert hashlib.sha256(got).digest() == hashlib.sha256(data).digest()
    elif way == "half":
        client.settimeout(None)
        client.sendall(data[:60_000])
        client.shutdown(socket.SHUT_WR)
        got = b""
        while piece := client.recv(7000):
            got += piece
        assert got == data[:60_000]
        try:
            client.send(b"x")
            raise AssertionError("sent after the end")
        except OSError as error:
            assert error.errno == errno.EPIPE
    elif way == "edges":
        data = data[: SIZE // 3]
        assert by_edges(client, data) == data
    elif way == "copies":
        client.settimeout(None)
        by_copies(client)
        return
    elif way == "leave":
        client.detach()  # and nobody closes it
        return
    elif way == "silent":
        print("connected", flush=True)
        client.settimeout(None)
        try:
            assert client.recv(1) == b""
        except ConnectionResetError:
            pass
        print("told", flush=True)
    client.close()


if sys.argv[1] == "loop":
    asyncio.run(serve_by_loop(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
elif sys.argv[1] == "serve":
    serve(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
else:
    call(sys.argv[2], int(sys.argv[3]), sys.argv[4])
