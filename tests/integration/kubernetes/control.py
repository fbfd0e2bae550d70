"""The control socket of a stand-in: ask.py sends a command's words, and prints the answer."""

import json
import os
import socket
import threading


def answer(connection, program, run):
    with connection:
        words = json.loads(connection.makefile().readline())
        try:
            out, errors, status = run(words)
        except SystemExit:  # of argparse
            out, errors, status = "", f"{program} does not understand {words}\n", 2
        connection.sendall(json.dumps({"out": out, "errors": errors, "status": status}).encode())


def serve(path, program, run):
    """Without end. run(words) returns (output, errors, status), in a thread of each command."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path + ".new")
        listener.listen(64)
        os.rename(path + ".new", path)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer, args=(connection, program, run), daemon=True).start()
