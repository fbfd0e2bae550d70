#!/usr/bin/env python3
"""glibc.py LIBRARY...: the drop-in libraries run with glibc 2.27 or later, and need nothing else.

Names each symbol of a later version. client/libc has the two ways to do without it: a definition of
its own (old_glibc.c), or the older version of the same symbol (old_glibc.S). Names each file of which
versions are needed and that has none in an image of a newer glibc (client/libc/empty.S)."""

import os
import re
import subprocess
import sys

BOUND = (2, 27)
STUBS = ("libdl.so.2", "libpthread.so.0")


def imports(library):
    """(name, version) of each undefined symbol that has a version."""
    text = subprocess.run(["readelf", "-W", "--dyn-syms", library], check=True, capture_output=True,
                          text=True).stdout
    return re.findall(r" UND (\S+?)@(\S+)", text)


def versioned(library):
    """The files of which it needs versions."""
    text = subprocess.run(["readelf", "-VW", library], check=True, capture_output=True, text=True).stdout
    return re.findall(r" File: (\S+)", text)


def complaints(library):
    for file in versioned(library):
        if file in STUBS:
            yield f"{file}: its versions are needed, and lib/vrdma/stubs/{file} has none"
    for name, version in imports(library):
        match = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", version)
        ours = re.match(r"(IBVERBS|RDMACM)_", version)
        if not match and not ours:
            yield f"{name}@{version}: of a library that an image need not have"
        elif match and tuple(map(int, match.groups())) > BOUND:
            yield f"{name}@{version}: later than glibc {BOUND[0]}.{BOUND[1]}"


def main(libraries):
    status = 0
    for library in libraries:
        found = sorted(set(complaints(library)))
        highest = max((tuple(map(int, v[6:].split("."))) for _, v in imports(library)
                       if re.fullmatch(r"GLIBC_[\d.]+", v)), default=(0,))
        print(f"{os.path.basename(library)}: needs glibc {'.'.join(map(str, highest))}")
        for complaint in found:
            print(f"  {complaint}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
