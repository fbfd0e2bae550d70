#!/usr/bin/env python3
"""merge.py [--all|--any] OUT BUILD[:TARGET,...]...: makes OUT a directory in which one ctest runs the tests
of the BUILDs that pairs.py chooses, with --all all of them, with --any those that it chooses in any build.

A test is named <build>/<name>. What looks only at the tree (label lint) is taken from the first
BUILD alone; a ThreadSanitizer build gives its unit and integration tests. Long kinds run first, and
of a kind those that may take longest.

Where TARGETs are named, the BUILD is configured and not yet built: <build>/build does that, before its
tests and after the build before it. It takes what processor time the other tests leave.
"""

import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pairs

COST = {"lint": 4000, "unit": 3000, "conformance": 2000, "fuzz": 1500, "integration": 1000}
OF_TSAN = {"unit", "integration"}
OF_TESTS = {"DEPENDS", "FIXTURES_SETUP", "FIXTURES_CLEANUP", "FIXTURES_REQUIRED"}


def quoted(value):
    if isinstance(value, bool):
        value = "ON" if value else "OFF"
    if isinstance(value, list):
        value = ";".join(map(str, value))
    return f"[==[{value}]==]"


def test(title, command, properties):
    yield f"add_test({quoted(title)} {' '.join(map(quoted, command))})\n"
    settings = " ".join(f"{k} {quoted(v)}" for k, v in properties.items())
    yield f"set_tests_properties({quoted(title)} PROPERTIES {settings})\n"


def commands_of(build):
    """name -> command. What ctest lists lacks those of programs that are not built yet."""
    commands = {}
    for path in glob.glob(os.path.join(build, "**", "CTestTestfile.cmake"), recursive=True):
        with open(path, encoding="utf-8") as f:
            for name, command in re.findall(r"^add_test\(\[=\[(.*)\]=\] (.*)\)$", f.read(), re.M):
                commands[name] = shlex.split(command)
    return commands


def lines_of_build(build, targets, before):
    name = os.path.basename(build)
    yield from test(f"{name}/build",
                    ["nice", "-n", "19", "cmake", "--build", build, "-j", os.cpu_count(), "--target", *targets],
                    {"FIXTURES_SETUP": f"{name}/build", "DEPENDS": before, "TIMEOUT": 3600})


def lines_of(build, fixture, first, every):
    name = os.path.basename(build)
    listing = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"],
                             check=True, capture_output=True, text=True).stdout
    commands = commands_of(build)
    for one in json.loads(listing)["tests"]:
        properties = {p["name"]: p["value"] for p in one.get("properties", [])}
        labels = properties.get("LABELS", [])
        if ("lint" in labels and not first) or (name == "tsan" and not OF_TSAN & set(labels)):
            continue
        builds = {"--all": [], "--any": ["release", "dev", "tsan"]}.get(every, [name])
        if builds and not any(pairs.chosen(build, one["name"], labels) for build in builds):
            continue
        for key in OF_TESTS & properties.keys():
            properties[key] = [f"{name}/{other}" for other in properties[key]]
        if fixture:
            properties["FIXTURES_REQUIRED"] = [*properties.get("FIXTURES_REQUIRED", []), fixture]
        properties.setdefault("COST", max([COST.get(label, 500) for label in labels] or [500]) +
                              min(properties.get("TIMEOUT", 0), 900))
        command = one.get("command") or commands.get(one["name"], [f"{one['name']}_is_not_built"])
        yield from test(f"{name}/{one['name']}", command, properties)


if __name__ == "__main__":
    every = sys.argv[1] if sys.argv[1].startswith("--") else None
    out, *builds = sys.argv[2 if every else 1:]
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    before = []
    with open(os.path.join(out, "CTestTestfile.cmake"), "w", encoding="utf-8") as f:
        for at, (build, _, targets) in enumerate(one.partition(":") for one in builds):
            fixture = f"{os.path.basename(build)}/build" if targets else None
            if fixture:
                f.writelines(lines_of_build(os.path.abspath(build), targets.split(","), before))
                before = [fixture]
            f.writelines(lines_of(build, fixture, at == 0, every))
