#!/usr/bin/env python3
"""scripts.py: shell and Python scripts parse; those with a first line `#!` may be executed."""

import os
import subprocess
import sys

import tree


def complaints_of(path):
    text = tree.read(path) or ""
    first = text.splitlines()[0] if text else ""
    if not path.endswith((".sh", ".py")) and not first.startswith("#!"):
        return []
    found = []
    if first.startswith("#!") and not os.access(os.path.join(tree.ROOT, path), os.X_OK):
        found.append(f"{path}: begins with #! and is not executable")
    if path.endswith(".py") or "python" in first:
        try:
            compile(text, path, "exec")
        except SyntaxError as error:
            found.append(f"{path}: {error}")
    elif path.endswith(".sh") or "sh" in first:
        run = subprocess.run(["bash", "-n", path], cwd=tree.ROOT, capture_output=True, text=True)
        found += run.stderr.splitlines()
    return found


if __name__ == "__main__":
    tree.finish([c for path in tree.files() for c in complaints_of(path)], "every script parses")
