#!/usr/bin/env python3
"""The project speaks of itself alone: no path of a developer's machine, no number of a tracker."""

import re

import tree

BAD = [
    # Written so that this file does not find itself.
    (re.compile(r"(?<![\w./-])[/](work|root|home/\w+)/"), "a path of somebody's machine"),
    (re.compile(r"\b(issue|ticket|bug)s?[ ]#?\d+", re.IGNORECASE), "a number of a tracker"),
    (re.compile(r"^(<{7}|>{7}) ", re.MULTILINE), "a merge left unfinished"),
]
FOREIGN = {"LICENSE"}


def complaints():
    for path in tree.files():
        text = None if path in FOREIGN else tree.read(path)
        if text is None:
            continue
        for pattern, what in BAD:
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                yield f"{path}:{line}: {what}: {match.group(0)!r}"


if __name__ == "__main__":
    tree.finish(list(complaints()), "no file speaks of machines or trackers")
