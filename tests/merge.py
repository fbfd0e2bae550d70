#!/usr/bin/env python3
"""merge.py [--all|--any] OUT BUILD...: makes OUT a directory in which one ctest runs the tests of the
BUILDs that pairs.py chooses, with --all all of them, with --any those that it chooses in any build.

A test is named <build>/<name>. What looks only at the tree (label lint) is taken from the first
BUILD alone; a ThreadSanitizer build gives its unit and integration tests. Long kinds run first.
"""

import json
import os
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


def lines_of(build, first, every):
    name = os.path.basename(build)
    listing = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"],
                             check=True, capture_output=True, text=True).stdout
    for test in json.loads(listing)["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        labels = properties.get("LABELS", [])
        if ("lint" in labels and not first) or (name == "tsan" and not OF_TSAN & set(labels)):
            continue
        builds = {"--all": [], "--any": ["release", "dev", "tsan"]}.get(every, [name])
        if builds and not any(pairs.chosen(build, test["name"], labels) for build in builds):
            continue
        for key in OF_TESTS & properties.keys():
            properties[key] = [f"{name}/{other}" for other in properties[key]]
        properties.setdefault("COST", max([COST.get(label, 500) for label in labels] or [500]))
        title = quoted(f"{name}/{test['name']}")
        command = test.get("command", [f"{test['name']}_is_not_built"])
        yield f"add_test({title} {' '.join(map(quoted, command))})"
        settings = " ".join(f"{k} {quoted(v)}" for k, v in properties.items())
        yield f"set_tests_properties({title} PROPERTIES {settings})"


if __name__ == "__main__":
    every = sys.argv[1] if sys.argv[1].startswith("--") else None
    out, *builds = sys.argv[2 if every else 1:]
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    with open(os.path.join(out, "CTestTestfile.cmake"), "w", encoding="utf-8") as f:
        for build in builds:
            f.writelines(line + "\n" for line in lines_of(build, build == builds[0], every))
