#!/usr/bin/env python3
"""merge.py TIER OUT BUILD...: makes OUT a directory in which one ctest runs the tests of the BUILDs that belong to
the TIER (tiers.py): quick, gate or all.

A test is named <build>/<name> and has its tier as a label. What looks only at the tree (label lint) is taken from the
first BUILD alone. Long kinds run first, and of a kind those that may take longest. A test that no row of tiers.py
names is an error.
"""

import os
import shutil
import sys

import listing
import tiers

COST = {"lint": 4000, "unit": 3000, "fuzz": 2500, "conformance": 2000, "integration": 1000}
WORK = {"unit", "fuzz"}  # they need a processor while they run; the others wait more than they work
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


def lines_of(build, tier, first, strangers):
    name = os.path.basename(build)
    for test_name, command, properties in listing.tests_of(build):
        labels = properties.get("LABELS", [])
        if "lint" in labels and not first:
            continue
        its = tiers.tier_of(name, test_name, labels)
        if its is None:
            strangers.append(f"{name}/{test_name}")
        if its is None or not tiers.belongs(its, tier):
            continue
        for key in OF_TESTS & properties.keys():
            properties[key] = [f"{name}/{other}" for other in properties[key]]
        properties["LABELS"] = [*labels, its]
        if WORK & set(labels):
            properties["PROCESSORS"] = 2  # of twice as many places as there are processors: tests/run
        properties.setdefault("COST", max([COST.get(label, 500) for label in labels] or [500]) +
                              min(properties.get("TIMEOUT", 0), 900))
        yield from test(f"{name}/{test_name}", command or [f"{test_name}_is_not_built"], properties)


def main(tier, out, *builds):
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    strangers = []
    with open(os.path.join(out, "CTestTestfile.cmake"), "w", encoding="utf-8") as f:
        for at, build in enumerate(builds):
            f.writelines(lines_of(os.path.abspath(build), tier, at == 0, strangers))
    if strangers:
        sys.exit("merge.py: tests/tiers.py has no row for " + ", ".join(strangers))


if __name__ == "__main__":
    main(*sys.argv[1:])
