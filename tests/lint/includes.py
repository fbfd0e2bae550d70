#!/usr/bin/env python3
"""Checks the tree against the table of rooms: which room may include which, and the form of a room.

    includes.py [ROOT]      check the tree
    includes.py --self-test check that the check finds what it should
"""

import collections
import os
import re
import sys
import tempfile

import tree

# A room may include itself, what stands here, and what that may include.
TABLE = {
    "core/base": [],
    "core/verbs": ["core/base"],
    "core/wire": ["core/base", "core/verbs"],
    "core/ipc": ["core/base", "core/verbs"],
    "core/serve": ["core/base"],
    "core/rdma": ["core/base", "core/verbs", "core/ipc"],
    "netns": ["core/base"],
    "gid": ["core/base", "core/verbs"],
    "qp1mux": ["core/base", "core/wire"],
    "provisioning": ["core/base"],
    "transport": ["core/base", "core/verbs", "core/wire", "core/ipc", "core/rdma"],
    "transport/shm": ["transport"],
    "transport/raw": ["transport"],
    "transport/net": ["transport"],
    "transport/tcp": ["transport"],
    "transport/roce": ["transport/net"],
    "transport/hca": ["transport"],
    "client": [],
    "client/dial": ["core/ipc"],
    "client/verbs": ["client/dial", "core/wire"],
    "client/device": ["client/verbs", "core/rdma"],
    "client/rdmacm": ["client/verbs", "core/rdma"],
    "client/rsocket": ["client/rdmacm"],
    "client/rspreload": ["client/rsocket"],
    "api": ["core/base", "provisioning", "gid"],
    "pvrdma/keeper": ["core/ipc"],
    "pvrdma/vfio_user": ["core/base"],
    "pvrdma": ["pvrdma/keeper", "pvrdma/vfio_user", "core/serve", "client/verbs"],
    "vrdmad/broker": ["core/rdma", "core/serve", "netns"],
    "vrdmad/stopper": ["vrdmad/broker"],
    "vrdmad/log": ["core/base"],
    "vrdmad/admin": ["vrdmad/broker", "vrdmad/log", "api"],
    "vrdmad/records": ["vrdmad/broker", "qp1mux"],
    "vrdmad/worker": ["vrdmad/records", "vrdmad/stopper", "provisioning", "qp1mux",
                      "transport/shm", "transport/raw", "transport/roce", "gid"],
    "vrdmad/cm": ["vrdmad/worker", "vrdmad/admin"],
    "vrdmad/hooks": ["vrdmad/admin", "provisioning"],
    "vrdmad/control": ["vrdmad/cm", "vrdmad/hooks"],
    "vrdmad": ["vrdmad/control", "vrdmad/log", "transport/tcp", "transport/roce",
               "transport/hca"],
    "cli/mounts": ["core/base"],
    "cli/hook": ["cli/mounts", "api", "core/ipc"],
    "cli/bad_wire": ["core/wire"],
    "cli/criu": ["cli/mounts", "core/base"],
    "cli/rdma": [],
    "cli/kubernetes": ["cli", "core/serve"],
    "cli/web": ["core/serve"],
    "cli": ["cli/bad_wire", "cli/mounts", "cli/hook", "cli/web", "api", "core/base", "core/verbs"],
    "docs": ["api"],  # examples
}
# Nobody includes tests; they include what they test.
TABLE["tests"] = list(TABLE)

TOP_FOLDERS = {room.split("/")[0] for room in TABLE} | {"packaging", "docs", ".ci", ".github"}
BAD_NAMES = {"util", "utils", "common", "misc", "manager", "helper", "helpers"}
SOURCES = tree.CXX + (".py", ".sh", ".cmake", ".proto", ".map", ".S")
MAX_LINES = 599
MAX_README = 20
MAX_DEPTH = 3  # folders above a file; tests/unit mirrors the tree and so has one more


def room_of(path):
    """The longest room that contains `path`, or None."""
    parts = path.split("/")
    for depth in (2, 1):
        room = "/".join(parts[:depth])
        if len(parts) > depth and room in TABLE:
            return room
    return None


def reachable(room):
    """All rooms that `room` may include."""
    seen, todo = set(), [room]
    while todo:
        r = todo.pop()
        if r not in seen:
            seen.add(r)
            todo += TABLE[r]
    return seen


def cycle_in(graph):
    """A path that ends where it began, or None. `graph`: node -> nodes."""
    done, trail = set(), []

    def visit(node):
        if node in trail:
            return trail[trail.index(node):] + [node]
        if node in done:
            return None
        trail.append(node)
        for following in graph.get(node, ()):
            found = visit(following)
            if found:
                return found
        trail.pop()
        done.add(node)
        return None

    for start in sorted(graph):
        found = visit(start)
        if found:
            return found
    return None


def check_includes(files, root):
    present = set(files)
    graph = collections.defaultdict(list)
    for path in files:
        if not path.endswith(tree.CXX):
            continue
        room = room_of(path)
        if room is None:
            yield f"{path}: stands in no room of the table"
            continue
        for number, line in enumerate((tree.read(path, root) or "").splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*(["<])([^">]+)', line)
            if not match:
                continue
            quote, name = match.groups()
            where = f"{path}:{number}"
            if quote == "<" and name in present:
                yield f"{where}: {name} is ours: name it in quotes"
            if quote == "<" and not name.startswith("vrdma/"):
                continue
            if name not in present and (quote == "<" or name.endswith(".pb.h")):
                target = "api"  # generated: the API's messages and services
            elif name not in present:
                yield f'{where}: "{name}" is no file of the tree, named from its root'
                continue
            else:
                target = room_of(name)
                graph[path].append(name)
            if target not in reachable(room):
                yield f'{where}: {room} may not include {target} ("{name}")'
    loop = cycle_in(graph)
    if loop:
        yield "headers include each other: " + " -> ".join(loop)


def check_shape(files, root):
    occupied = collections.defaultdict(list)
    for path in files:
        folders, name = path.split("/")[:-1], path.split("/")[-1]
        if folders and folders[0] not in TOP_FOLDERS:
            yield f"{path}: {folders[0]}/ is no room"
        for folder in folders:
            if folder.lower() in BAD_NAMES:
                yield f"{path}: {folder}/ says nothing; name the noun it holds"
        limit = MAX_DEPTH + (folders[:2] == ["tests", "unit"])
        if len(folders) > limit:
            yield f"{path}: {len(folders)} folders deep; {limit} are allowed"
        lines = (tree.read(path, root) or "").count("\n")
        if name.endswith(SOURCES) and lines > MAX_LINES:
            yield f"{path}: {lines} lines; find the second noun and split it"
        if name == "README.md" and folders and folders[0] != "docs" and lines > MAX_README:
            if folders != ["tests"]:  # its table of tests is longer
                yield f"{path}: {lines} lines; a room's README has at most {MAX_README}"
        room = room_of(path) if room_of(path) else folders[0] if folders else None
        if room and name not in ("CMakeLists.txt", ".gitkeep"):
            occupied[room].append(path)
    for room, paths in sorted(occupied.items()):
        needs = not room.startswith(("transport/", "docs", "."))
        if needs and f"{room}/README.md" not in files:
            yield f"{room}/README.md is missing ({len(paths)} files stand in the room)"


def check(root):
    if cycle_in(TABLE):
        return ["the table itself: " + " -> ".join(cycle_in(TABLE))]
    files = tree.files(root)
    return list(check_includes(files, root)) + list(check_shape(files, root))


def self_test():
    """Lays out a bad tree and asks for each complaint."""
    bad = {
        "core/README.md": "core\n",
        "core/base/README.md": "base\n" * 21,
        "core/base/fd.h": '#include "core/verbs/ids.h"\n',
        "core/verbs/README.md": "verbs\n",
        "core/verbs/ids.h": '#include "core/base/fd.h"\n',
        "gid/table.cc": '#include "netns/netns.h"\n#include "table.h"\n#include "api/x.pb.h"\n',
        "netns/README.md": "netns\n",
        "netns/netns.h": "\n" * 600,
        "transport/README.md": "transport\n",
        "transport/shm/shm.cc": '#include "transport/tcp/tcp.h"\n',
        "transport/tcp/tcp.h": '#include "transport/transport.h"\n',
        "transport/transport.h": '#include "core/rdma/qp.h"\n',
        "core/rdma/README.md": "rdma\n",
        "core/rdma/qp.h": "",
        "core/rdma/util/x.h": "",
        "core/rdma/a/b/x.h": "",
        "vrdmad/README.md": "vrdmad\n",
        "vrdmad/a.cc": '#include "api/x.pb.h"\n#include "gid/table.cc"\n#include "client/c.h"\n',
        "client/README.md": "client\n",
        "client/c.h": "#include <vector>\n#include <core/base/fd.h>\n#include <vrdma/v1/x.pb.h>\n",
        "stuff/x.cc": "",
    }
    expected = [
        "core/base/fd.h:1: core/base may not include core/verbs",
        "headers include each other: core/base/fd.h -> core/verbs/ids.h -> core/base/fd.h",
        "core/base/README.md: 21 lines",
        "gid/table.cc:1: gid may not include netns",
        'gid/table.cc:2: "table.h" is no file of the tree',
        "gid/table.cc:3: gid may not include api",
        "gid/README.md is missing",
        "netns/netns.h: 600 lines",
        "transport/shm/shm.cc:1: transport/shm may not include transport/tcp",
        "core/rdma/util/x.h: util/ says nothing",
        "core/rdma/a/b/x.h: 4 folders deep",
        "vrdmad/a.cc:3: vrdmad may not include client",
        "client/c.h:2: core/base/fd.h is ours",
        "client/c.h:3: client may not include api",
        "stuff/x.cc: stuff/ is no room",
        "stuff/x.cc: stands in no room",
        "stuff/README.md is missing",
    ]
    with tempfile.TemporaryDirectory() as root:
        for path, text in bad.items():
            os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                f.write(text)
        found = check(root)
    wrong = [f"not found: {e}" for e in expected if not any(f.startswith(e) for f in found)]
    wrong += [f"found, though right: {f}" for f in found
              if not any(f.startswith(e) for e in expected)]
    tree.finish(wrong, f"self-test: all {len(expected)} faults were found, and nothing else")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    tree.finish(check(sys.argv[1] if len(sys.argv) > 1 else tree.ROOT),
                "every include is in the table, every room is in order")
