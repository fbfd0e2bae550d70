#!/usr/bin/env python3
"""run_pyverbs.py TESTS RESULTS [--without WHAT=REASON]... [arguments of rdma-core's run_tests.py]

Runs rdma-core's Python tests, unmodified, and writes to RESULTS: a first line "passed failed
skipped", then a table of their classes, then the reasons of what was skipped. A class whose tests
are all for another vendor's device has no line of its own."""

import collections
import importlib.machinery
import os
import re
import sys
import unittest

# rdma-core 44 on the kernel's rxe.
RXE = {"passed": 86, "failed": 1, "skipped": 186}
# Of what only one vendor's hardware can do there are many; they are one line.
VENDORS = re.compile(r"tests\.test_(mlx5|efa)\w*\.|MLX5|EFA|cuda|Cuda|CUDA")


class Counts(unittest.TextTestResult):
    """What became of each test; a test that failed in parts counts once."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.classes = collections.defaultdict(collections.Counter)
        self.reasons = collections.Counter()
        self.without = {}

    def startTest(self, test):
        super().startTest(test)
        reason = next((why for what, why in self.without.items() if what in test.id()), None)
        if reason:
            test.skipTest = None
            test.setUp = lambda: (_ for _ in ()).throw(unittest.SkipTest(reason))

    def count(self, test, outcome):
        vendor = VENDORS.search(test.id())
        name = "(other hardware)" if vendor else test.id().rsplit(".", 1)[0].removeprefix("tests.")
        self.classes[name][outcome] += 1

    def addSuccess(self, test):
        super().addSuccess(test)
        self.count(test, "passed")

    def addError(self, test, err):
        super().addError(test, err)
        self.count(test, "failed")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.count(test, "failed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.count(test, "skipped")
        self.reasons[re.sub(r"\.? ?Errno: .*", "", reason)] += 1


def table(result):
    width = max(len(name) for name in result.classes)
    line = f"{{:{width}}}  {{:>6}}  {{:>6}}  {{:>7}}"
    total = sum(result.classes.values(), collections.Counter())
    yield "{} {} {}".format(*(total[outcome] for outcome in RXE))
    yield line.format("PYVERBS CLASS", *(outcome.upper() for outcome in RXE))
    for name, counts in sorted(result.classes.items(), key=lambda c: (c[0][0] == "(", c)):
        yield line.format(name, *(counts[outcome] for outcome in RXE))
    yield line.format("all, on vrdma", *(total[outcome] for outcome in RXE))
    yield line.format("all, on rxe", *RXE.values())
    yield ""
    yield "SKIPPED  BECAUSE"
    for reason, count in result.reasons.most_common():
        yield f"{count:7}  {reason}"


def main():
    folder, results, *rest = sys.argv[1:]
    without = {}
    while rest[:1] == ["--without"]:
        module, reason = rest[1].split("=", 1)
        without[module] = reason
        rest = rest[2:]
    sys.argv[1:] = rest
    sys.path.insert(0, folder)
    loader = importlib.machinery.SourceFileLoader("tests", os.path.join(folder, "__init__.py"))
    tests = loader.load_module()
    from args_parser import parser  # rdma-core's, which its tests read
    parser.parse_args()

    def counts(*arguments):
        made = Counts(*arguments)
        made.without = without
        return made

    suite = unittest.defaultTestLoader.loadTestsFromModule(tests)
    result = unittest.TextTestRunner(resultclass=counts, verbosity=2).run(suite)
    with open(results, "w", encoding="utf-8") as file:
        file.writelines(f"{text}\n" for text in table(result))


if __name__ == "__main__":
    main()
