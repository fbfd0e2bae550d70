#!/usr/bin/env python3
"""support.py FOUND ALLOWED [--write]: docs/verbs-support.md says of each verb, opcode and capability what a
live vdevice answers.

FOUND is what the program `support` printed, ALLOWED the same of a vdevice that was made with all that
can be allowed: what only that one has is "allowed" in the document. A row of the document is "| `name` | value | ...", below
the heading of its section. Complains about each row that is stale, missing or of nothing; --write
mends the values and adds what is missing, with a remark to be written."""

import os
import re
import sys

DOCUMENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/verbs-support.md")
ROW = re.compile(r"^\| `([^`]+)` \| ([^|]*?) \|(.*)$")
SECTIONS = {"## Verbs": "verbs", "## Opcodes": "opcodes", "## Capabilities": "capabilities",
            "## Device flags": "flags"}


def read_found(path):
    found = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            section, name, value = line.rstrip("\n").split("\t")
            found.setdefault(section, {})[name] = value
    return found


def main():
    write = "--write" in sys.argv
    found = read_found(sys.argv[1])
    for section, rows in read_found(sys.argv[2]).items():
        for name, value in rows.items():
            if found[section][name] == "no" and value == "yes":
                found[section][name] = "allowed"
    missing = {section: dict(rows) for section, rows in found.items()}
    complaints, lines, section = [], [], None

    def add_missing():
        # Behind the last row of the section that ends here.
        for name, value in missing.pop(section, {}).items():
            complaints.append(f"{name}: is {value}, and has no row")
            lines.append(f"| `{name}` | {value} | ? | ? |")

    for line in open(DOCUMENT, encoding="utf-8").read().splitlines():
        row = ROW.match(line)
        if section in missing and not row and lines and ROW.match(lines[-1]):
            add_missing()
        if line.startswith("## "):
            section = SECTIONS.get(line)
        if row and section:
            name, said, rest = row.groups()
            value = found.get(section, {}).get(name)
            if name in missing.get(section, {}):
                del missing[section][name]
            if value is None:
                complaints.append(f"{name}: has a row, and is asked of no device")
            elif value != said:
                complaints.append(f"{name}: is {value}, and the document says {said}")
                line = f"| `{name}` | {value} |{rest}"
            if rest.rstrip(" |").endswith("?"):
                complaints.append(f"{name}: its row says '?'")
        lines.append(line)
    complaints += [f"section {s}: has no heading" for s in found if s not in SECTIONS.values()]
    for complaint in complaints:
        print(f"docs/verbs-support.md: {complaint}")
    if write:
        with open(DOCUMENT, "w", encoding="utf-8") as document:
            document.write("\n".join(lines) + "\n")
        return 0
    rows = sum(map(len, found.values()))
    print(f"{len(complaints)} complaints" if complaints else f"all {rows} rows are true")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
