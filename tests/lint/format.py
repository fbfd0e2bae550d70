#!/usr/bin/env python3
"""format.py [--fix]: the C and C++ files of the tree look as clang-format leaves them."""

import shutil
import subprocess
import sys

import tree

if __name__ == "__main__":
    if not shutil.which("clang-format"):
        print("skipped: clang-format is not installed")
        sys.exit(77)
    sources = [f for f in tree.files() if f.endswith(tree.CXX)]
    how = ["-i"] if "--fix" in sys.argv else ["--dry-run", "-Werror"]
    run = subprocess.run(["clang-format", *how, *sources], cwd=tree.ROOT,
                         capture_output=True, text=True)
    tree.finish(run.stderr.splitlines(), f"{len(sources)} files are formatted")
