#!/usr/bin/env python3
"""words.py [--self-test]: files name no developer's machine and no tracker, and text is plain English.

Markdown, man pages and scripts must not contain the patterns of UNCLEAR (CONTRIBUTING.md, "How text reads")."""

import re
import sys

import tree

BAD = [
    # Written so that this file does not find itself.
    (re.compile(r"(?<![\w./-])[/](work|root|home/\w+)/"), "a path of somebody's machine"),
    (re.compile(r"\b(issue|ticket|bug)s?[ ]#?\d+", re.IGNORECASE), "a number of a tracker"),
    (re.compile(r"^(<{7}|>{7}) ", re.MULTILINE), "a merge left unfinished"),
]
# Patterns that hide the actor or replace an established term. This file is exempt.
UNCLEAR = [
    (re.compile(r"\b[Ww]ho (is|has|comes|may)\b"), "name the actor instead of 'who'"),
    (re.compile(r"\bof (ours|theirs)\b"), "name the owner"),
    (re.compile(r"\bfor ever\b"), "write 'forever', or name the limit"),
    (re.compile(r"\bhow manieth\b"), "write 'sequence number'"),
    (re.compile(r"\bto (its|his) like\b"), "name the other object"),
]
FOREIGN = {"LICENSE"}


def is_prose(path, text):
    return path != "tests/lint/words.py" and (
        re.search(r"\.(md|sh|py|[1-8])$", path) is not None or text.startswith("#!"))


def complaints():
    for path in tree.files():
        text = None if path in FOREIGN else tree.read(path)
        if text is None:
            continue
        for pattern, what in BAD + (UNCLEAR if is_prose(path, text) else []):
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                yield f"{path}:{line}: {what}: {match.group(0)!r}"


def self_test():
    bad = ["tell who is left", "Who comes late waits", "a client of ours", "waits for ever", "the how manieth",
           "connects to its like"]
    good = ["users whose limit", "the whole is", "of hours", "wait forever", "asks who connected"]
    wrong = [f"is not found: {text!r}" for text in bad if not any(p.search(text) for p, _ in UNCLEAR)]
    wrong += [f"is found: {text!r}" for text in good if any(p.search(text) for p, _ in UNCLEAR)]
    for path, text, expected in [("a/b.md", "", True), ("a/b.8", "", True), ("a/b.sh", "", True),
                                 ("tests/run", "#!/bin/bash\n", True), ("a/b.cc", "", False)]:
        if is_prose(path, text) != expected:
            wrong.append(f"{path}: is_prose() is not {expected}")
    return wrong


if __name__ == "__main__":
    if "--self-test" in sys.argv:
        tree.finish(self_test(), "the patterns find what they should")
    tree.finish(list(complaints()), "no file names machines or trackers, and no text has an unclear pattern")
