#!/usr/bin/env python3
"""mutants.py: each patch of tests/mutants applies to the tree, and names the test that finds it."""

import os
import subprocess

import tree


def complaints_of(path):
    if not path.startswith("tests/mutants/") or not path.endswith(".patch"):
        return []
    head = (tree.read(path) or "").partition("\ndiff ")[0]
    found = [] if "\nTest: " in head else [f"{path}: has no line 'Test: '"]
    run = subprocess.run(["git", "apply", "--check", os.path.join(tree.ROOT, path)], cwd=tree.ROOT,
                         capture_output=True, text=True)
    if run.returncode != 0:
        found.append(f"{path}: does not apply: {run.stderr.splitlines()[0]}")
    return found


if __name__ == "__main__":
    tree.finish([c for path in tree.files() for c in complaints_of(path)], "every mutant applies")
