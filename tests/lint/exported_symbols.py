#!/usr/bin/env python3
"""exported_symbols.py LIBRARY FACTS [--sanitized]: the library exports what FACTS lists.

FACTS is `objdump -T` of the library to be replaced, shortened: a line "VERSION NAME SECTION", the
version in parentheses if the symbol is hidden (name@VERSION, for old programs only) and bare if it
is the default one (name@@VERSION). The line "V V *ABS*" is the version node itself.

Compared are names, versions, hidden or default, kind (code or data) and size of data, the version
nodes and which inherits from which, the SONAME, and what the library needs: libc alone, and the
loader, which is part of it. Sanitized builds need their runtime, so that is left out there.
"""

import os
import re
import subprocess
import sys

ALLOWED_NEEDED = {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
# Node -> its predecessor. Debian's, in the order of the releases that added them.
VERBS = ["IBVERBS_1.0", "IBVERBS_1.1"] + [f"IBVERBS_1.{n}" for n in range(5, 15)]
RDMACM = [f"RDMACM_1.{n}" for n in range(4)]
PARENTS_OF = {
    "libibverbs.so.1": dict(zip(VERBS[1:], VERBS)) | {VERBS[0]: None, "IBVERBS_PRIVATE_34": None},
    "librdmacm.so.1": dict(zip(RDMACM[1:], RDMACM)) | {RDMACM[0]: None},
}
# Ours beside it, by that name.
ALSO_NEEDED = {"libibverbs.so.1": set(), "librdmacm.so.1": {"libibverbs.so.1"}}
DATA_SIZE = {"verbs_allow_disassociate_destroy": 1}


def readelf(*args):
    return subprocess.run(["readelf", "-W", *args], check=True, capture_output=True, text=True).stdout


def expected(facts):
    """{(name, version, hidden): is it data?}; and the set of version nodes."""
    symbols, nodes = {}, set()
    with open(facts, encoding="utf-8") as lines:
        for line in lines:
            if not line.strip():
                continue
            version, name, section = line.split()
            if section == "*ABS*":
                nodes.add(name)
                continue
            hidden = version.startswith("(")
            symbols[name, version.strip("()"), hidden] = section != ".text"
    return symbols, nodes


def exported(library):
    """{(name, version, hidden): (is it data?, size)}; and the set of version nodes."""
    symbols, nodes = {}, set()
    pattern = re.compile(r"^\s*\d+: [0-9a-f]+\s+(\d+)\s+(\w+)\s+(GLOBAL|WEAK|UNIQUE)\s+(\w+)"
                         r".*?\s+(\w+)\s+(\S+)$")
    for line in readelf("--dyn-syms", library).splitlines():
        match = pattern.match(line)
        if not match:
            continue
        size, kind, _, _, section, full = match.groups()
        if section == "UND":
            continue
        name, at, version = full.partition("@")
        if section == "ABS":
            nodes.add(name)
        else:
            symbols[name, version.lstrip("@"), at == "@" and not version.startswith("@")] = (
                kind == "OBJECT", int(size))
    return symbols, nodes


def predecessors(library):
    """{version node: the node it inherits from, or None}"""
    found, node = {}, None
    text = readelf("--version-info", library).split("Version needs section")[0]
    for line in text.splitlines():
        if match := re.search(r"Rev: .*Flags: (\S+).*Name: (\S+)", line):
            node = match.group(2) if match.group(1) != "BASE" else None
            if node:
                found[node] = None
        elif (match := re.search(r"Parent \d+: (\S+)", line)) and node:
            found[node] = match.group(1)
    return found


def spell(symbol):
    name, version, hidden = symbol
    return f"{name}{'@' if hidden else '@@'}{version}"


def complaints(library, facts, sanitized):
    soname = os.path.basename(library)
    want, want_nodes = expected(facts)
    have, have_nodes = exported(library)
    for symbol in sorted(want.keys() - have.keys()):
        yield f"missing: {spell(symbol)}"
    for symbol in sorted(have.keys() - want.keys()):
        yield f"exported but not Debian's: {spell(symbol)}"
    for symbol in sorted(want.keys() & have.keys()):
        is_data, size = have[symbol]
        if is_data != want[symbol]:
            yield f"{spell(symbol)}: {'data' if is_data else 'code'} instead of the other"
        elif is_data and not sanitized and size != DATA_SIZE[symbol[0]]:
            yield f"{spell(symbol)}: {size} bytes instead of {DATA_SIZE[symbol[0]]}"
    for node in sorted(want_nodes ^ have_nodes):
        yield f"version node {node}: {'missing' if node in want_nodes else 'not Debians'}"
    parents = predecessors(library)
    for node, parent in sorted(PARENTS_OF[soname].items()):
        if parents.get(node) != parent:
            yield f"version node {node} inherits from {parents.get(node)}, not {parent}"

    dynamic = readelf("-d", library)
    if f"soname: [{soname}]" not in dynamic:
        yield f"the SONAME is not {soname}"
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    more = needed - ALLOWED_NEEDED - ALSO_NEEDED[soname]
    if more and not sanitized:
        yield f"needs more than libc: {', '.join(sorted(more))}"
    if "TEXTREL" in dynamic:
        yield "has text relocations"
    if re.search(r"GNU_STACK.*RWE", readelf("-l", library)):
        yield "asks for an executable stack"


if __name__ == "__main__":
    found = list(complaints(sys.argv[1], sys.argv[2], "--sanitized" in sys.argv[3:]))
    for complaint in found:
        print(complaint)
    if found:
        sys.exit(1)
    print(f"{os.path.basename(sys.argv[1])}: {len(expected(sys.argv[2])[0])} symbols as Debian's 44.0")
