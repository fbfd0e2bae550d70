#!/usr/bin/env python3
"""kernel_calls.py MAP LIBRARY...: no LIBRARY imports what MAP exports.

MAP is the version script of librspreload.so, which puts calls of its own before libc's. What the
other libraries imported by these names would come to it (client/dial/kernel.cc).
"""

import re
import subprocess
import sys


def exports(script):
    with open(script, encoding="utf-8") as text:
        body = re.sub(r"/\*.*?\*/", "", text.read(), flags=re.DOTALL)
    return set(re.findall(r"(\w+);", body.split("global:")[1].split("local:")[0]))


def imports(library):
    listing = subprocess.run(["nm", "--dynamic", "--undefined-only", "--without-symbol-versions",
                              library], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1] for line in listing.splitlines() if line.strip()}


if __name__ == "__main__":
    names, failed = exports(sys.argv[1]), False
    if not {"close", "poll", "read"} <= names:
        sys.exit(f"{sys.argv[1]}: is no map of librspreload.so")
    for path in sys.argv[2:]:
        needed = imports(path)
        if "syscall" not in needed:
            sys.exit(f"{path}: does not import syscall, so its imports were not read")
        for name in sorted(needed & names):
            print(f"{path}: imports {name}; define it in client/dial/kernel.cc")
            failed = True
    sys.exit(failed)
