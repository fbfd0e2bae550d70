"""A server that sends back each datagram, and its clients, with ordinary sockets.

rsocket_datagrams.py serve ADDRESS PORT blocking|poll|loop: until a client says "end"
rsocket_datagrams.py call ADDRESS PORT WAY [LONGEST]: WAY is a function below

To "who" the server says who asks; at "again" it begins anew with another socket. What is lost is
sent again: that is what datagrams are.
"""
import asyncio
import errno
import os
import select
import socket
import struct
import sys
import threading

PATIENCE = 30  # how often something is sent again


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def answer(data, peer):
    return repr(peer[:2]).encode() if data.endswith(b"who") else data


def bound(address, port):
    server = socket.socket(family_of(address), socket.SOCK_DGRAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 19)
    server.bind((address, port))
    return server


def serve(address, port, way):
    while serve_one(address, port, way) == b"again":
        pass


def serve_one(address, port, way):
    server = bound(address, port)
    poll = select.poll()
    poll.register(server, select.POLLIN)
    if way == "poll":
        server.setblocking(False)
    while True:
        if way == "poll":
            assert poll.poll()[0][1] == select.POLLIN
        try:
            data, peer = server.recvfrom(65536)
            assert not data.startswith(b"forged"), (data, peer)
            server.sendto(answer(data, peer), peer)
        except BlockingIOError:
            continue
        if data in (b"end", b"again"):
            server.close()
            return data


class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport
        self.ended = asyncio.get_running_loop().create_future()
        self.lost = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc):
        self.lost.set_result(None)

    def datagram_received(self, data, addr):
        assert not data.startswith(b"forged"), (data, addr)
        self.transport.sendto(answer(data, addr), addr)
        if data == b"end" and not self.ended.done():
            self.ended.set_result(None)

    def error_received(self, exc):
        raise exc


async def serve_by_loop(address, port):
    loop = asyncio.get_running_loop()
    transport, echo = await loop.create_datagram_endpoint(Echo, (address, port))
    await echo.ended
    transport.close()
    await echo.lost  # an answer that the socket had no room for has been sent


def ask(client, data, to=None, wanted=None):
    """Its answer, which is the same unless said otherwise; blocking, for so long."""

    def answer():
        while True:
            got, peer = client.recvfrom(65536)
            if to is not None:
                assert peer[:2] == to[:2], peer
            if got == data or wanted is not None and got.startswith(wanted):
                return got

    before = client.gettimeout()
    client.settimeout(1)
    for repeated in range(PATIENCE):
        if to is None:
            client.send(data)
        else:
            client.sendto(data, to)
        try:
            got = answer()
        except (TimeoutError, ConnectionRefusedError):
            continue
        try:  # an answer that was only late is followed by others, which the caller must not find
            for _ in range(repeated):
                answer()
        except (TimeoutError, ConnectionRefusedError):
            pass
        client.settimeout(before)
        return got
    raise AssertionError(f"{data[:20]} is not answered")


def connected(address, port):
    client = socket.socket(family_of(address), socket.SOCK_DGRAM)
    client.connect((address, port))
    assert client.getpeername()[:2] == (address, port)
    assert client.getsockname()[1] != 0 and client.getsockname()[0] not in ("0.0.0.0", "::")
    return client


def end(address, port, longest):
    ask(connected(address, port), b"end")


def blocking(address, port, longest):
    client = connected(address, port)
    for size in (1, 64, 1000, longest):
        ask(client, os.urandom(size))
    assert ask(client, b"who", wanted=b"(") == repr(client.getsockname()[:2]).encode()
    client.close()


def empty(address, port, longest):
    client = connected(address, port)
    for _ in range(3):  # by UDP, and by a queue pair
        ask(client, b"")


def unconnected(address, port, longest):
    client = socket.socket(family_of(address), socket.SOCK_DGRAM)
    server = (address, port)
    ask(client, b"by its address", server)
    here = client.getsockname()
    assert here[1] != 0
    asked = ask(client, b"who", server, wanted=b"(")
    assert asked.endswith(f", {here[1]})".encode()), asked
    ask(client, os.urandom(longest), server)
    client.close()


def nonblocking(address, port, longest):
    client = connected(address, port)
    ask(client, b"first")
    client.setblocking(False)
    for how in (0, socket.MSG_DONTWAIT):
        try:
            client.recv(1, how)
            raise AssertionError("there was nothing to read")
        except BlockingIOError:
            pass
        client.setblocking(True)
    client.setblocking(False)
    poll = select.poll()
    poll.register(client, select.POLLIN | select.POLLOUT)
    assert poll.poll(0) == [(client.fileno(), select.POLLOUT)]
    poll.modify(client, select.POLLIN)
    assert poll.poll(20) == []
    epoll = select.epoll()
    epoll.register(client, select.EPOLLIN)
    assert epoll.poll(0) == []
    assert select.select([client], [client], [], 0) == ([], [client], [])
    waits = (
        lambda: poll.poll(1000),
        lambda: select.select([client], [], [], 1)[0],
        lambda: epoll.poll(1),
    )
    for number in range(300):
        data = b"%d" % number
        for _ in range(PATIENCE):
            client.send(data)
            if waits[number % 3]():
                got = client.recv(100)
                if got == data:
                    break
        else:
            raise AssertionError("no answer")
    assert poll.poll(0) == [] or client.recv(100)
    epoll.close()
    client.close()


def boundaries(address, port, longest):
    """Each receive takes one message, however long; what there is no room for is lost."""
    client = connected(address, port)
    ask(client, b"first")
    client.settimeout(20)
    for size in (1, 10, 100, 1000):
        client.send(bytes([size % 251]) * size)
    for size in (1, 10, 100, 1000):
        assert client.recv(65536) == bytes([size % 251]) * size, "lost, without a reason"
    client.send(b"0123456789")
    client.send(b"next")
    assert client.recv(4, socket.MSG_PEEK) == b"0123"
    room = bytearray(4)
    assert client.recv_into(room, 4, socket.MSG_PEEK | socket.MSG_TRUNC) == 10
    data, _, flags, peer = client.recvmsg(4)
    assert (data, flags, peer[:2]) == (b"0123", socket.MSG_TRUNC, (address, port))
    first, second = bytearray(2), bytearray(10)
    count, _, flags, _ = client.recvmsg_into([first, second])
    assert (count, flags, first, bytes(second[:2])) == (4, 0, b"ne", b"xt")
    assert client.sendmsg([b"in ", b"", b"pieces"]) == 9
    assert client.recv(100) == b"in pieces"


def too_long(address, port, longest):
    for asked in (False, True):
        client = connected(address, port)
        if asked:
            ask(client, b"where the queue pair is")
        for size in (longest + 1, 65000, 200_000):
            try:
                client.send(bytes(size))
                raise AssertionError(f"{size} bytes are sent")
            except OSError as error:
                assert error.errno == errno.EMSGSIZE, error
        ask(client, bytes(longest))
        client.close()


def filters(address, port, longest):
    """The process that is connected hears its peer and nobody else."""
    client = connected(address, port)
    ask(client, b"first")
    here = client.getsockname()
    other = socket.socket(family_of(address), socket.SOCK_DGRAM)
    other.bind((here[0], 0))
    open_one = socket.socket(family_of(address), socket.SOCK_DGRAM)
    open_one.bind(("", 0))
    port_of_it = open_one.getsockname()[1]
    assert other.getsockname()[0] == here[0]
    for _ in range(3):  # by UDP, and by a queue pair
        other.sendto(b"a stranger", here[:2])
    open_one.settimeout(1)
    for _ in range(PATIENCE):
        other.sendto(b"to all", (here[0], port_of_it))
        try:
            data, peer = open_one.recvfrom(100)
            break
        except TimeoutError:
            pass
    assert (data, peer[:2]) == (b"to all", other.getsockname()[:2])
    open_one.sendto(b"back", peer)
    other.settimeout(20)
    assert other.recvfrom(100)[0] == b"back"
    ask(client, b"second")
    client.settimeout(0.1)
    try:
        raise AssertionError(client.recv(100))
    except TimeoutError:
        pass


def refused(address, port, longest):
    client = connected(address, port + 1)
    for _ in range(PATIENCE):
        try:
            client.send(b"nobody is there")
            select.select([client], [], [], 1)
            client.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue
        except ConnectionRefusedError:
            break
    else:
        raise AssertionError("it is not told")
    try:
        raise AssertionError(client.recv(1, socket.MSG_DONTWAIT))
    except BlockingIOError:
        pass  # told once


def woken(address, port, longest):
    """Who waits is told that the socket is closed, or shut down."""
    for how in ("close", "shutdown"):
        client = connected(address, port)
        ask(client, b"first")
        said = []

        def wait():
            try:
                said.append(client.recv(100))
            except OSError as error:
                said.append(error.errno)

        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        if how == "close":
            client.close()
        else:
            client.shutdown(socket.SHUT_RDWR)
        thread.join(20)
        assert not thread.is_alive()
        assert said == [errno.EBADF if how == "close" else b""], said
        if how == "shutdown":
            try:
                client.send(b"x")
                raise AssertionError("sent after the end")
            except BrokenPipeError:
                pass


def threads(address, port, longest):
    """Four with a socket each, then four that send by one, of which one receives."""

    def alone(letter):
        client = connected(address, port)
        for number in range(500):
            ask(client, b"%s%d" % (letter, number))

    failed = []

    def guarded(call, *arguments):
        try:
            call(*arguments)
        except BaseException as error:
            failed.append(error)

    def together(call, arguments):
        all_ = [threading.Thread(target=guarded, args=(call, each)) for each in arguments]
        for each in all_:
            each.start()
        for each in all_:
            each.join(60)
            assert not each.is_alive()
        assert not failed, failed

    together(alone, (b"a", b"b", b"c", b"d"))
    client = connected(address, port)
    ask(client, b"first")
    heard = set()

    def receive():
        client.settimeout(1)
        try:
            while len(heard) < 4:
                heard.add(client.recv(100)[:1])
        except TimeoutError:
            pass

    def send(letter):
        for number in range(200):
            client.send(b"%s%d" % (letter, number))

    for _ in range(PATIENCE):
        receiver = threading.Thread(target=guarded, args=(receive,))
        receiver.start()
        together(send, (b"a", b"b", b"c", b"d"))
        receiver.join(60)
        assert not receiver.is_alive()
        if len(heard) == 4:
            return
    raise AssertionError(heard)


def flood(address, port, longest):
    """More than there is room for, and nobody reads: what is lost is lost."""
    client = connected(address, port)
    ask(client, b"first")
    for _ in range(20_000):
        client.send(bytes(1000))
    ask(client, b"and then")


def again(address, port, longest):
    """The server goes and another one comes: with another queue pair."""
    client = connected(address, port)
    ask(client, b"before")
    ask(client, b"again")
    ask(client, b"after")


def shrinks(address, port, longest):
    """The MTU becomes smaller while a socket is in use."""
    client = connected(address, port)
    ask(client, bytes(longest))
    print("ready", flush=True)
    while not os.path.exists("shrunk"):
        select.select([], [], [], 0.05)
    for _ in range(PATIENCE):
        try:
            client.send(bytes(longest))
            select.select([client], [], [], 1)
        except OSError as error:
            assert error.errno == errno.EMSGSIZE, error
            break
    else:
        raise AssertionError("it sends what it cannot")
    ask(client, bytes(1000))


def silent(address, port, longest):
    client = connected(address, port)
    ask(client, b"first")
    print("ready", flush=True)
    try:
        client.recv(1)
    except OSError as error:
        print("told", errno.errorcode[error.errno], flush=True)


def forever(address, port, longest):
    """Asks and asks; a line for each hundred answers."""
    client = connected(address, port)
    while True:
        for number in range(100):
            ask(client, b"%d" % number)
        print("answered", flush=True)


def inherited(address, port, longest):
    """A child that closes what it has inherited takes nothing from its parent."""
    client = connected(address, port)
    ask(client, b"before")
    child = os.fork()
    if child == 0:
        client.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    for _ in range(3):
        ask(client, b"after")


def waiting(address, port, longest):
    """How long the next message is."""
    client = connected(address, port)
    ask(client, b"first")
    import fcntl
    import termios

    def next_one():
        return struct.unpack("i", fcntl.ioctl(client, termios.FIONREAD, bytes(4)))[0]

    assert next_one() == 0
    for _ in range(PATIENCE):
        client.send(b"12345")
        if select.select([client], [], [], 1)[0]:
            break
    assert next_one() == 5
    assert client.recv(100) == b"12345"


def plain(address, port, longest):
    """What no vdevice can do is the kernel's."""
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    group = socket.inet_aton("239.1.2.3") + socket.inet_aton(address)
    client.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x10)
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, b"\2")
    assert sender.getsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL) == 2
    assert sender.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 131072  # the kernel doubles it
    assert sender.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 0x10
    asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    assert asker.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST) == 0
    precise = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ttl = (socket.IPPROTO_IP, socket.IP_TTL, struct.pack("i", 9))
    assert precise.sendmsg([b"x"], [ttl], 0, (address, port)) == 1
    nobody = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    nobody.bind(("", 0))
    before = nobody.getsockname()
    nobody.sendto(bytes(5000), ("10.0.0.99", 9))  # longer than over RDMA, and nobody has it
    assert nobody.getsockname() == before
    both = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    for to in ("::ffff:127.0.0.1", "::1"):
        both.sendto(bytes(5000), (to, 9))
    interfaces = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    import fcntl

    SIOCGIFINDEX = 0x8933
    fcntl.ioctl(interfaces, SIOCGIFINDEX, struct.pack("16s16x", b"lo"))


if __name__ == "__main__":
    what, where, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if what == "call":
        for way in sys.argv[4].split(","):
            print(way, flush=True)
            globals()[way](where, number, int(sys.argv[5]) if len(sys.argv) > 5 else 1000)
    elif sys.argv[4] == "loop":
        asyncio.run(serve_by_loop(where, number))
    else:
        serve(where, number, sys.argv[4])
