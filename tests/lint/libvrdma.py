#!/usr/bin/env python3
"""libvrdma.py LIBRARY HEADER: the library exports what the header declares, with versions, and no more."""

import re
import sys

import exported_symbols


def complaints(library, header):
    with open(header, encoding="utf-8") as f:
        text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.DOTALL)
    declared = set(re.findall(r"^[\w *]+?\b(\w+)\([^;{]*\);", text, flags=re.MULTILINE))
    symbols, nodes = exported_symbols.exported(library)
    exported = {name for name, _, _ in symbols}
    for name in sorted(declared - exported):
        yield f"{name} is declared and not exported"
    for name in sorted(exported - declared):
        yield f"{name} is exported and not declared"
    for name, version, _ in sorted(symbols):
        if not version.startswith("VRDMA_"):
            yield f"{name} has no version"
    if nodes != {"VRDMA_1.0"}:
        yield f"version nodes: {', '.join(sorted(nodes))}"
    if "soname: [libvrdma.so.1]" not in exported_symbols.readelf("-d", library):
        yield "the SONAME is not libvrdma.so.1"
    if len(declared) < 10:
        yield f"only {len(declared)} functions are found in {header}"


if __name__ == "__main__":
    found = list(complaints(sys.argv[1], sys.argv[2]))
    for complaint in found:
        print(complaint)
    sys.exit(1 if found else 0)
