#!/usr/bin/env python3
"""verdict.py late JUNIT, verdict.py end TESTS JUNIT [JUNIT OF THE SECOND TIME]: what ctest's results mean.

A test that fails has failed. Only where a wait was too short may a busy machine be to blame: nothing
else went wrong, no sanitizer spoke, and the test came to its end. `late` prints the names of those,
for which there is a second time, each by itself; `end` prints what was slow, with the share of its limit (TESTS is the
directory of ctest), and what was late, and exits with 1 if something has failed."""

import re
import sys
import xml.etree.ElementTree as tree

import listing

SLOWEST = 10
REASONS = 8  # lines of a failed test's output that are repeated at the end
# lib.sh's and gtest's words for a wait that was over before what was waited for was the case.
# The first line of an output is indented in JUnit's file.
WAIT = r"Value of: (?:[\w.:>-]*(?:\.|->|::))?(?:wait_for|eventually|run_until)\(.*\n  Actual: false$"
LATE = re.compile(r"^\s*FAILED: .* \(waited \d+ s\)$|^" + WAIT, re.M)
HARD = re.compile(r"(ERROR|WARNING): \w+Sanitizer|runtime error:|Segmentation fault|"
                  r"^\s*FAILED: (?!.*\(waited \d+ s\)$)|: Failure\n(?!" + WAIT + ")", re.M)
REASON = re.compile(r"^\s*FAILED: |^!! |Sanitizer: |runtime error: |: Failure$")


def results(path):
    """name -> (seconds, "passed" | "skipped" | "failed" | "late", what the test printed)"""
    found = {}
    for case in tree.parse(path).getroot().iter("testcase"):
        verdict = {"run": "passed", "notrun": "skipped", "disabled": "skipped"}.get(
            case.get("status"), "failed")
        output = "".join(case.itertext())
        if verdict == "failed":
            failure = case.find("failure")
            hung = failure is not None and "Timeout" in failure.get("message", "")
            if not hung and LATE.search(output) and not HARD.search(output):
                verdict = "late"
        found[case.get("name")] = (float(case.get("time")), verdict, output)
    return found


def names(found, verdict):
    return sorted(name for name, (_, said, _) in found.items() if said == verdict)


def reasons(output):
    """The lines that say why the test failed, or else its last ones."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return [line for line in lines if REASON.search(line)][:REASONS] or lines[-REASONS:]


def limits_of(tests):
    """name -> seconds after which ctest ends the test"""
    return {name: properties.get("TIMEOUT", 0) for name, _, properties in listing.tests_of(tests)}


def shares(found, limits):
    """name -> the part of its limit that the test took"""
    return {name: seconds / limits[name] for name, (seconds, *_) in found.items() if limits.get(name)}


def end(tests, first, second):
    share = shares(first, limits_of(tests))
    print(f"-- the {SLOWEST} slowest tests, and the share of its limit that each took")
    for name, (seconds, *_) in sorted(first.items(), key=lambda one: -one[1][0])[:SLOWEST]:
        print(f"{seconds:8.1f} s {share.get(name, 0):5.0%}  {name}")
    for name in sorted(share, key=share.get, reverse=True):
        if share[name] > 0.5:
            print(f"-- {name} took {share[name]:.0%} of its limit")
    failed = names(first, "failed")
    for name in names(first, "late"):
        if second.get(name, (0, "failed"))[1] == "passed":
            print(f"-- late: {name} had waited too short a time, and passed by itself")
        else:
            failed.append(name)
    for name in failed:
        print(f"-- failed: {name}")
        for line in reasons(first[name][2]):
            print(f"   {line}")
    print(f"-- {len(names(first, 'passed'))} tests passed, {len(names(first, 'skipped'))} were skipped, "
          f"{len(names(first, 'late'))} were late, {len(failed)} failed")
    return 1 if failed else 0


def self_test():
    said = {
        "late": ["FAILED: the server does not listen (waited 20 s)\n",
                 "\n\t\tFAILED: it is the first line (waited 20 s)\n",
                 "FAILED: it does not listen: its log has (waited 20 s)\ntwo lines\n---- server.log\n",
                 "x.cc:7: Failure\nValue of: wait_for([&] { return true; })\n  Actual: false\n",
                 "x.cc:7: Failure\nValue of: rig.wait_for(1)\n  Actual: false\nExpected: true\n",
                 "x.cc:7: Failure\nValue of: vrdmad::eventually([] { return list() == 0; })\n  Actual: false\n",
                 "x.cc:7: Failure\nValue of: run_until(*loop, [&] { return done; })\n  Actual: false\n"],
        "failed": ["FAILED: the data are not the same\n",
                   "\n\t\tFAILED: the data are not the same\nFAILED: it is late (waited 5 s)\n",
                   "FAILED: it is not there (waited 5 s)\nERROR: AddressSanitizer: heap-use\n",
                   "FAILED: it is not there (waited 5 s)\nFAILED: a file is left\n",
                   "FAILED: the programs differ:\nFAILED is the state (waited 5 s)\n",
                   "x.cc:7: Failure\nValue of: is_in_order(run_until(1))\n  Actual: false\n",
                   "x.cc:7: Failure\nValue of: wait_for(2, milliseconds(20))\n  Actual: true\nExpected: false\n",
                   "x.cc:7: Failure\nValue of: wait_for(1)\n  Actual: false\nx.cc:8: Failure\nExpected"],
    }
    wrong = [(verdict, text) for verdict, texts in said.items() for text in texts
             if (verdict == "late") != bool(LATE.search(text) and not HARD.search(text))]
    for verdict, text in wrong:
        print(f"is not {verdict}: {text}")
    return 1 if wrong else 0


if __name__ == "__main__":
    if sys.argv[1] == "--self-test":
        sys.exit(self_test())
    if sys.argv[1] == "late":
        print("\n".join(names(results(sys.argv[2]), "late")))
    else:
        of_both = [results(path) for path in sys.argv[3:]]
        sys.exit(end(sys.argv[2], of_both[0], of_both[1] if len(of_both) > 1 else {}))
