#!/usr/bin/env python3
"""words.py [--self-test]: files name no developer's machine and no tracker, and text is plain English.

Markdown, man pages, scripts and comments of C++ must not contain the patterns of UNCLEAR (CONTRIBUTING.md, "How
text reads")."""

import re
import sys

import tree

BAD = [
    # Written so that this file does not find itself.
    (re.compile(r"(?<![\w./-])[/](work|root|home/\w+)/"), "a path of somebody's machine"),
    (re.compile(r"\b(issue|ticket|bug)s?[ ]#?\d+", re.IGNORECASE), "a number of a tracker"),
    (re.compile(r"^(<{7}|>{7}) ", re.MULTILINE), "a merge left unfinished"),
]
# Patterns that hide the actor or replace an established term.
UNCLEAR = [
    (re.compile(r"\b[Ww]ho (is|has|comes|may)\b"), "name the actor instead of 'who'"),
    (re.compile(r"\bof (ours|theirs)\b"), "name the owner"),
    (re.compile(r"\bfor ever\b"), "write 'forever', or name the limit"),
    (re.compile(r"\bhow manieth\b"), "write 'sequence number'"),
    (re.compile(r"\bto (its|his) like\b"), "name the other object"),
    (re.compile(r"\b[Ss]omebody\b"), "name the actor instead of 'somebody'"),
    (re.compile(r"\b(is|are) to be\b"), "write 'must be', or say what happens"),
]
FOREIGN = {"LICENSE"}
QUOTES = {"tests/lint/words.py", "CONTRIBUTING.md"}  # they name the patterns
COMMENT = re.compile(r"(?:^|\s)//(.*)$")


def prose_of(path, text):
    """The part of the text that is written in English, in the same lines."""
    if path in QUOTES:
        return ""
    if path.endswith(tree.CXX):
        comments = (COMMENT.search(line) for line in text.split("\n"))
        return "\n".join(comment.group(1) if comment else "" for comment in comments)
    return text if re.search(r"\.(md|sh|py|[1-8])$", path) or text.startswith("#!") else ""


def complaints():
    for path in tree.files():
        text = None if path in FOREIGN else tree.read(path)
        if text is None:
            continue
        for patterns, where in ((BAD, text), (UNCLEAR, prose_of(path, text))):
            for pattern, what in patterns:
                for match in pattern.finditer(where):
                    line = where.count("\n", 0, match.start()) + 1
                    yield f"{path}:{line}: {what}: {match.group(0)!r}"


def self_test():
    bad = ["tell who is left", "Who comes late waits", "a client of ours", "waits for ever", "the how manieth",
           "connects to its like", "if somebody asks", "a word that is to be read"]
    good = ["users whose limit", "the whole is", "of hours", "wait forever", "asks who connected"]
    wrong = [f"is not found: {text!r}" for text in bad if not any(p.search(text) for p, _ in UNCLEAR)]
    wrong += [f"is found: {text!r}" for text in good if any(p.search(text) for p, _ in UNCLEAR)]
    for path, text, expected in [("a/b.md", "text", "text"), ("a/b.8", "text", "text"), ("a/b.sh", "text", "text"),
                                 ("tests/run", "#!/bin/bash\n", "#!/bin/bash\n"), ("a/b.txt", "text", ""),
                                 ("a/b.cc", 'f("http://a");\n  g();  // why', "\n why")]:
        if prose_of(path, text) != expected:
            wrong.append(f"{path}: prose_of() is {prose_of(path, text)!r}")
    return wrong


if __name__ == "__main__":
    if "--self-test" in sys.argv:
        tree.finish(self_test(), "the patterns find what they should")
    tree.finish(list(complaints()), "no file names machines or trackers, and no text has an unclear pattern")
