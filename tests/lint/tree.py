"""What belongs to the tree: the files git knows or would take, or all of them where there is no git."""

import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

CXX = (".c", ".cc", ".h")


def files(root=ROOT):
    """Paths relative to `root`, sorted; build directories and deleted files are not among them."""
    if os.path.exists(os.path.join(root, ".git")):
        listed = subprocess.run(
            ["git", "-c", "safe.directory=*", "-C", root, "ls-files", "-z",
             "--cached", "--others", "--exclude-standard"],
            check=True, capture_output=True, text=True).stdout.split("\0")
        return sorted({f for f in listed if f and os.path.isfile(os.path.join(root, f))})
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders
                      if f != "__pycache__" and not (folder == root and f.startswith("build"))]
        found += [os.path.relpath(os.path.join(folder, n), root) for n in names]
    return sorted(found)


def read(path, root=ROOT):
    """The file's text, or None when it is not text."""
    try:
        with open(os.path.join(root, path), encoding="utf-8") as f:
            return f.read()
    except UnicodeDecodeError:
        return None


def finish(complaints, passed):
    """Prints what was found, or the sentence `passed`, and exits."""
    for complaint in complaints:
        print(complaint)
    print(f"{len(complaints)} complaints" if complaints else passed)
    sys.exit(1 if complaints else 0)
