#!/usr/bin/env python3
"""man.py: the man pages render without a warning."""

import os
import re
import shutil
import subprocess
import sys

import tree


def warnings(page):
    run = subprocess.run(
        ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page], cwd=tree.ROOT,
        env={**os.environ, "LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "80"},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return [f"{page}: {line}" for line in run.stderr.splitlines()] + (
        [f"{page}: man exits with {run.returncode}"] if run.returncode else [])


if __name__ == "__main__":
    if not shutil.which("man") or not shutil.which("troff"):
        print("skipped: man and groff are not installed")
        sys.exit(77)
    pages = [f for f in tree.files() if re.search(r"/[\w.-]+\.[1-8]$", f)]
    tree.finish([w for page in pages for w in warnings(page)], f"{len(pages)} pages are sound")
