#!/usr/bin/python3
"""ask.py SOCKET WORDS...: sends a command to kubelet.py, prints its output and errors, and exits with its status."""
import json
import socket
import sys

with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    connection.sendall(json.dumps(sys.argv[2:]).encode() + b"\n")
    received = b"".join(iter(lambda: connection.recv(65536), b""))
if not received:
    sys.exit("kubelet.py ended before it answered")
answer = json.loads(received)
sys.stdout.write(answer["out"])
sys.stderr.write(answer["errors"])
sys.exit(answer["status"])
