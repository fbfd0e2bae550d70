#!/usr/bin/env python3
"""constants.py: a table in a header is `inline`. A constant at namespace scope is otherwise another one in each source
file, so a pointer to its element compares equal in a unity build and unequal in the build that users make."""

import re

import tree

TABLE = re.compile(r"^(?:constexpr|const)\s[^;()]*?\s(k\w+)\s*(?:\[\w*\])?\s*(?:=\s*)?\{", re.MULTILINE)


if __name__ == "__main__":
    headers = [path for path in tree.files() if path.endswith(".h")]
    tree.finish([f"{path}: {name} is not inline" for path in headers
                 for name in TABLE.findall(tree.read(path) or "")],
                f"the tables of {len(headers)} headers are inline")
