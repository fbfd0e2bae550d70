#!/usr/bin/env python3
"""stop_thread.py PID NAME FILE: stops one thread of a process until this program ends. FILE appears
when the thread has stopped."""
import ctypes
import os
import signal
import sys

PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000


def main():
    pid, name, done = sys.argv[1:]
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    ptrace.restype = ctypes.c_long
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/comm", encoding="utf-8") as comm:
            if comm.read().strip() != name:
                continue
        for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
            if ptrace(request, int(task), None, None) != 0:
                sys.exit(os.strerror(ctypes.get_errno()))
        os.waitpid(int(task), WALL)
        with open(done, "w", encoding="utf-8"):
            pass
        signal.pause()
    sys.exit(f"process {pid} has no thread {name}")


main()
