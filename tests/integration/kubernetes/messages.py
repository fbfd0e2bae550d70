"""Messages of protobuf by their numbers of fields, without generated code, and calls of gRPC with such messages."""
import sys

try:
    import grpc
except ImportError:
    print("skipped: python3-grpcio is not installed")
    sys.exit(77)


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    """A field whose value is a bool, an int, a str or the bytes of a message. The default of proto3 is left out."""
    if isinstance(value, (bool, int)):
        return varint(number << 3) + varint(int(value)) if value else b""
    if isinstance(value, str):
        value = value.encode()
        if not value:
            return b""
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(number, values):
    """A repeated field; of strings, an empty one too."""
    return b"".join(field(number, value.encode() if isinstance(value, str) else value) for value in values)


def pairs(number, values):
    """A field of type map<string, string>."""
    return b"".join(field(number, field(1, key) + field(2, value)) for key, value in values.items())


class Message:
    """A message that was received."""

    def __init__(self, data=b""):
        self.values = {}
        at = 0

        def number():
            nonlocal at
            result = shift = 0
            while True:
                byte = data[at]
                at += 1
                result |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return result

        while at < len(data):
            tag = number()
            if tag & 7 == 0:
                value = number()
            else:
                length = {1: 8, 5: 4}.get(tag & 7)
                length = number() if length is None else length
                value = data[at:at + length]
                at += length
            self.values.setdefault(tag >> 3, []).append(value)

    def number(self, field_number):
        return self.values.get(field_number, [0])[-1]

    def text(self, field_number):
        return self.values.get(field_number, [b""])[-1].decode(errors="replace")

    def texts(self, field_number):
        return [value.decode() for value in self.values.get(field_number, [])]

    def message(self, field_number):
        return Message(self.values.get(field_number, [b""])[-1])

    def messages(self, field_number):
        return [Message(value) for value in self.values.get(field_number, [])]

    def map(self, field_number):
        return {one.text(1): one.text(2) for one in self.messages(field_number)}


def as_it_is(data):
    return data


def channel_to(path):
    # A pool of its own: a later channel to a path whose socket was replaced must not meet the old connection.
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 500)]
    return grpc.insecure_channel("unix:" + path, options=options)


def call(channel, method, message, timeout=None, wait=False):
    """The answer of `method`, which is "/package.Service/Method". wait: for a server that is about to start."""
    function = channel.unary_unary(method, request_serializer=as_it_is, response_deserializer=Message)
    return function(message, timeout=timeout, wait_for_ready=wait)


def stream(channel, method, message=b""):
    return channel.unary_stream(method, request_serializer=as_it_is, response_deserializer=Message)(message)


def unary(function):
    """A handler that calls function(message, context) and sends the bytes that it returns."""
    return grpc.unary_unary_rpc_method_handler(function, request_deserializer=Message, response_serializer=as_it_is)
