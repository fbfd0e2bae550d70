#!/usr/bin/env python3
"""transcript.py PAGE [--update] | --check PAGE...: runs the commands of a page of documentation and compares what they print.

To be started by tests/docs/run, on a machine that forgets. A page has fenced blocks:

    ```console      commands, each after "$ " (continued after "> "), and what they print below; all blocks
                    of a page are one session of bash. "# fails" behind a command: its status is not 0.
    ```sh           commands that are not run; a comment `<!-- not run: WHY -->` stands before the block
    <!-- may end with more: WHY -->   before a block: its last command may print lines below those of the page
    <!-- run        commands that a reader does not need to see, up to `-->`

A command that ends in "&" goes on in the background; the next one begins when it listens for connections.
Output is compared line by line after numbers, addresses and white space have been made equal; a line
"..." stands for any lines. `--update` writes the page with what was really printed to descriptor 3."""

import difflib
import os
import re
import signal
import subprocess
import sys
import time

SECONDS = 90  # for one command
FENCE = re.compile(r"^```(\S*)\s*$")


class Block:
    """Lines begin..end (end not included) of the page, without the fences."""

    def __init__(self, begin, end, commands, hidden, open_end=False):
        self.begin, self.end, self.commands, self.hidden = begin, end, commands, hidden
        self.open_end = open_end  # the last command may print more lines


def parse(lines):
    """The blocks that are run. Raises ValueError for a block that no rule explains."""
    blocks, number, excused, open_end = [], 0, False, False
    while number < len(lines):
        line = lines[number]
        fence = FENCE.match(line)
        if line.startswith("<!-- run"):
            end = next(i for i in range(number, len(lines)) if lines[i].rstrip().endswith("-->"))
            blocks.append(Block(number + 1, end, [("\n".join(lines[number + 1:end]), [])], True))
            number = end
        elif line.startswith("<!-- not run:"):
            excused = True
        elif line.startswith("<!-- may end with more:"):
            open_end = True
        elif fence:
            end = next(i for i in range(number + 1, len(lines)) if lines[i].startswith("```"))
            body = lines[number + 1:end]
            if fence[1] == "console":
                blocks.append(Block(number + 1, end, session(body, number + 1), False, open_end))
            elif fence[1] in ("", "sh", "bash") and not excused:
                raise ValueError(f"line {number + 1}: a block of commands is ```console, or says why it is not run")
            elif any(text.startswith("$ ") for text in body):
                raise ValueError(f"line {number + 1}: commands in a block that is not ```console")
            number, excused, open_end = end, False, False
        elif line.strip():
            excused = open_end = False
        number += 1
    return blocks


def session(body, first):
    """[(command, lines that it prints)]"""
    found = []
    for offset, text in enumerate(body):
        if text.startswith("$ "):
            found.append((text[2:], []))
        elif text.startswith("> ") and found and not found[-1][1]:
            found[-1] = (found[-1][0] + "\n" + text[2:], [])
        elif found:
            found[-1][1].append(text)
        else:
            raise ValueError(f"line {first + offset}: output without a command")
    return found


ADDRESS = re.compile(r"\b[0-9a-f]*(?::[0-9a-f]*){2,}(?:\d+\.\d+\.\d+\.\d+)?", re.I)
NUMBER = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{16}\b|\d+(?:\.\d+)?(?:(?:[kMG]|[mu]?s)\b)?", re.I)


def alike(line):
    """What two runs have in common: no number, address or width of a column."""
    return " ".join(NUMBER.sub("#", ADDRESS.sub("<address>", line)).split())


def same(expected, printed):
    expected = [alike(line) for line in expected]
    printed = [alike(line) for line in printed]
    if "..." not in expected:
        return expected == printed
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(line) + "\n" for line in expected)
    return re.fullmatch(pattern, "".join(line + "\n" for line in printed)) is not None


class Shell:
    """One bash. run() returns (status, lines printed)."""

    def __init__(self):
        self.bash = subprocess.Popen(["bash", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, text=True, errors="replace")
        self.jobs = 0

    def run(self, command):
        background = re.fullmatch(r"(.*?)\s*&\s*", command, re.S)
        if background:
            self.jobs += 1
            before = listeners()
            result = self.send(f"{{ {background[1]}\n}} </dev/null >/tmp/job.{self.jobs} 2>&1 &")
            end = time.monotonic() + 4
            while listeners() <= before and time.monotonic() < end and self.alive():
                time.sleep(0.05)
            return result
        return self.send(command)

    def alive(self):
        return self.send("kill -0 $!")[0] == 0

    def send(self, command):
        self.bash.stdin.write(f"{command}\nprintf '\\n@@%s@@\\n' $?\n")
        self.bash.stdin.flush()
        signal.alarm(SECONDS)
        lines = []
        for line in self.bash.stdout:
            status = re.fullmatch(r"@@(\d+)@@\n", line)
            if status:
                signal.alarm(0)
                if lines and lines[-1] == "":
                    lines.pop()
                return int(status[1]), lines
            lines.append(line.rstrip("\n"))
        raise EOFError("the shell has ended:\n" + "\n".join(lines))


def listeners():
    """How many sockets wait for connections: of TCP, of rdma_cm, and the daemon's for operators."""
    sockets = set()
    for process in [name for name in os.listdir("/proc") if name.isdigit()]:
        try:
            with open(f"/proc/{process}/net/tcp") as table:
                sockets |= {line.split()[9] for line in table if line.split()[3] == "0A"}
        except OSError:
            pass  # the process has ended
    of_cm = subprocess.run(["vrdmactl", "conn", "list"], capture_output=True, text=True).stdout.count("LISTEN")
    return len(sockets) + of_cm + os.path.exists("/run/vrdma/admin.sock")


def main(page, update):
    with open(page, encoding="utf-8") as text:
        lines = text.read().splitlines()
    shell, changed, failures = Shell(), [], 0
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(f"{page}: a command is not done after {SECONDS} s"))
    for block in parse(lines):
        output = []
        for index, (command, expected) in enumerate(block.commands):
            status, printed = shell.run(command)
            if block.open_end and index == len(block.commands) - 1 and same(expected + ["..."], printed):
                printed = expected
            fails = command.rstrip().endswith("# fails")
            if (status != 0) != fails:
                failures += 1
                print(f"{page}:{block.begin + 1}: status {status} of: {command}")
                print("\n".join("    " + line for line in printed))
            elif not block.hidden and not update and not same(expected, printed):
                failures += 1
                print(f"{page}:{block.begin + 1}: other output of: {command}")
                print("\n".join(difflib.unified_diff(expected, printed, "documented", "printed", lineterm="", n=0)))
            output += ["$ " + command.replace("\n", "\n> ")]
            output += expected if same(expected, printed) else printed
        if not block.hidden:
            changed.append((block, output))
    if update:
        for block, output in reversed(changed):
            lines[block.begin:block.end] = output
        with open(3, "w", encoding="utf-8") as text:
            text.write("\n".join(lines) + "\n")
    print(f"{page}: {len(changed)} blocks, {failures} complaints")
    return 1 if failures else 0


def check(pages):
    """Whether each page can be read; nothing is run."""
    complaints = 0
    for page in pages:
        with open(page, encoding="utf-8") as text:
            try:
                parse(text.read().splitlines())
            except ValueError as error:
                complaints += 1
                print(f"{page}: {error}")
    print(f"{len(pages)} pages, {complaints} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    if sys.argv[1] == "--check":
        sys.exit(check(sys.argv[2:]))
    sys.exit(main(sys.argv[1], "--update" in sys.argv[2:]))
