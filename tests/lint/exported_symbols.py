#!/usr/bin/env python3
"""The library exports what the libraries that it replaces export.

    exported_symbols.py LIBRARY FACTS... [--sanitized]
    exported_symbols.py --read LIBRARY      prints the facts of a library, for a new file of exports/

FACTS are the symbols of Debian's library in one release each: the first line says which, each other
is "VERSION NAME SECTION" as `objdump -T` has it, with the version in parentheses if the symbol is
hidden (name@VERSION) and bare if it is the default one (name@@VERSION). "V V *ABS*" is the version
node itself.

Each symbol of each release must be there, code or data as it is there, and data of that size.
Default or hidden must be alike, but that only one of the private nodes (IBVERBS_PRIVATE_*) can have
the default. More may be there only in nodes of releases to come: those declared below. A private
node has every private function. Compared are the nodes and which inherits from which, the SONAME,
and what the library needs: libc alone, and the loader, which is part of it. Sanitized builds need
their runtime, so that is left out there.
"""

import os
import re
import subprocess
import sys

# libdl and libpthread are libc's; since 2.34 they are empty.
ALLOWED_NEEDED = {"libc.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2",
                  "ld-linux-aarch64.so.1"}
# Node -> its predecessor. rdma-core's, in the order of the releases that added them.
VERBS = ["IBVERBS_1.0", "IBVERBS_1.1"] + [f"IBVERBS_1.{n}" for n in range(5, 25)]
RDMACM = [f"RDMACM_1.{n}" for n in range(10)]
PRIVATE = "IBVERBS_PRIVATE_"
PRIVATE_NODES = [f"{PRIVATE}{n}" for n in [25, 33, 34, 57, 59, 64, 65, *range(66, 80)]]
DEFAULT_PRIVATE = f"{PRIVATE}34"
# Of releases that Debian 11, 12, 13 and sid do not have: 25 to 32.
OLD_PRIVATE = {"ibv_cmd_query_device", "ibv_cmd_query_device_ex", "ibv_get_fw_ver"}
PARENTS_OF = {
    "libibverbs.so.1": dict(zip(VERBS[1:], VERBS)) | {VERBS[0]: None} |
                       {node: None for node in PRIVATE_NODES},
    "librdmacm.so.1": dict(zip(RDMACM[1:], RDMACM)) | {RDMACM[0]: None},
}
# Ours beside it, by that name.
ALSO_NEEDED = {"libibverbs.so.1": set(), "librdmacm.so.1": {"libibverbs.so.1"}}
DATA_SIZE = {"verbs_allow_disassociate_destroy": 1}


def readelf(*args):
    return subprocess.run(["readelf", "-W", *args], check=True, capture_output=True, text=True).stdout


class Release:
    """Debian's library of one release: `symbols` {(name, version, hidden): is it data?}."""

    def __init__(self, facts):
        with open(facts, encoding="utf-8") as lines:
            self.name = next(lines).removeprefix("#").strip()
            self.symbols = {}
            for line in filter(str.strip, lines):
                version, name, section = line.split()
                if section != "*ABS*":
                    self.symbols[name, version.strip("()"), version[0] == "("] = section != ".text"


def exported(library):
    """{(name, version, hidden): (is it data?, size)}"""
    symbols = {}
    pattern = re.compile(r"^\s*\d+: [0-9a-f]+\s+(\d+)\s+(\w+)\s+(GLOBAL|WEAK|UNIQUE)\s+(\w+)"
                         r".*?\s+(\w+)\s+(\S+)$")
    for line in readelf("--dyn-syms", library).splitlines():
        match = pattern.match(line)
        if not match:
            continue
        size, kind, _, _, section, full = match.groups()
        if section in ("UND", "ABS"):
            continue
        name, at, version = full.partition("@")
        symbols[name, version.lstrip("@"), at == "@" and not version.startswith("@")] = (
            kind == "OBJECT", int(size))
    return symbols


def read(library):
    """The lines of a file of facts."""
    for (name, version, hidden), (is_data, _) in sorted(exported(library).items()):
        version = f"({version})" if hidden else version
        yield f"{version} {name} {'.bss' if is_data else '.text'}"


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


def here(symbol):
    """The symbol of a release, default or hidden as it is in this library."""
    name, version, hidden = symbol
    return name, version, hidden or (version.startswith(PRIVATE) and version != DEFAULT_PRIVATE)


def missing_and_wrong(have, releases, sanitized):
    for release in releases:
        for symbol, is_data in sorted(release.symbols.items()):
            symbol = here(symbol)
            if symbol not in have:
                yield f"missing: {spell(symbol)} of {release.name}"
                continue
            found_data, size = have[symbol]
            if found_data != is_data:
                yield f"{spell(symbol)}: {'data' if found_data else 'code'} instead of the other"
            elif is_data and not sanitized and size != DATA_SIZE[symbol[0]]:
                yield f"{spell(symbol)}: {size} bytes instead of {DATA_SIZE[symbol[0]]}"


def more_than_wanted(have, releases):
    known = {here(symbol) for release in releases for symbol in release.symbols}
    private = {name for name, version, _ in known if version.startswith(PRIVATE)} | OLD_PRIVATE
    private = {name for name in private if not name.startswith("verbs_register_driver_")}
    for symbol in sorted(have.keys() - known):
        name, version, hidden = symbol
        if not version.startswith(PRIVATE):
            yield f"exported, and of no release: {spell(symbol)}"
        elif hidden == (version == DEFAULT_PRIVATE):
            yield f"default instead of hidden, or the other way round: {spell(symbol)}"
        elif name not in private and name != f"verbs_register_driver_{version[len(PRIVATE):]}":
            yield f"exported, and of no release: {spell(symbol)}"
    if private == OLD_PRIVATE:
        return
    for node in PRIVATE_NODES:
        wanted = private | {f"verbs_register_driver_{node[len(PRIVATE):]}"}
        for name in sorted(wanted - {n for n, version, _ in have if version == node}):
            yield f"missing: {name}@{node}, which other private nodes have"


def complaints(library, releases, sanitized):
    soname = os.path.basename(library)
    have = exported(library)
    yield from missing_and_wrong(have, releases, sanitized)
    yield from more_than_wanted(have, releases)
    parents, wanted = predecessors(library), PARENTS_OF[soname]
    for node in sorted(wanted.keys() ^ parents.keys()):
        yield f"version node {node}: {'missing' if node in wanted else 'of no release'}"
    for node in sorted(wanted.keys() & parents.keys()):
        if parents[node] != wanted[node]:
            yield f"version node {node} inherits from {parents[node]}, not {wanted[node]}"

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


def main(arguments):
    if arguments[:1] == ["--read"]:
        print("\n".join(read(arguments[1])))
        return 0
    library, *facts = [word for word in arguments if word != "--sanitized"]
    releases = [Release(path) for path in facts]
    found = list(complaints(library, releases, "--sanitized" in arguments))
    for complaint in found:
        print(complaint)
    for release in releases:
        print(f"{os.path.basename(library)}: {len(release.symbols)} symbols of {release.name}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
