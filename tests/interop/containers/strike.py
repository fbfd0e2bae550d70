#!/usr/bin/python3
"""strike.py DIRECTORY HOOK ARGUMENT...: a hook that runs vrdma-oci-hook and kills a process at a moment.
strike.py --call FILE DIRECTORY HOOK: changes the calls of HOOK in FILE, a CDI specification or a config.json, to this.

The file DIRECTORY/plan has the words WHO MOMENT DELAY. WHO is `hook`, `runtime` (the parent of this process), `monitor`
(its parent) or `daemon` (the process in DIRECTORY/daemon). MOMENT is `before` (the hook has not begun), `inside` (DELAY
seconds after it has begun), `after` (it has ended) or `poststop` (before that hook). For `inside`, the hook is stopped
while this program looks how far it has come.

Writes to DIRECTORY/struck: WHO, NAME of the killed process, and the step. Without a plan, or where the plan is of the
other hook, it becomes vrdma-oci-hook."""
import json
import os
import signal
import subprocess
import sys
import time


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def has_ended(pid):
    """Reaped or not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def name_of(pid):
    with open(f"/proc/{pid}/comm", encoding="ascii", errors="replace") as file:
        return file.read().strip()


class Striker:
    def __init__(self, directory, who):
        self.directory, self.who = directory, who
        runtime = os.getppid()
        with open(f"{directory}/daemon", encoding="ascii") as file:
            daemon = int(file.read())
        self.victim = {"runtime": runtime, "monitor": parent_of(runtime), "daemon": daemon, "hook": os.getpid()}[who]

    def strike(self, step, victim=None):
        victim = victim or self.victim
        name = "vrdma-oci-hook" if self.who == "hook" else name_of(victim)
        with open(f"{self.directory}/struck", "w", encoding="ascii") as file:
            file.write(f"{self.who}|{name}|{step}\n")
        os.kill(victim, signal.SIGKILL)
        while not has_ended(victim):
            time.sleep(0.001)


def vdevices(run_dir):
    return set(os.listdir(f"{run_dir}/netns"))


def has_mounts(init):
    try:
        with open(f"/proc/{init}/mountinfo", encoding="ascii", errors="replace") as file:
            return "/run/vrdma " in file.read()
    except OSError:
        return False


def run_inside(striker, hook, state, run_dir, delay):
    before = vdevices(run_dir)
    child = subprocess.Popen(hook, stdin=subprocess.PIPE)
    child.stdin.write(state)
    child.stdin.close()
    time.sleep(delay)
    os.kill(child.pid, signal.SIGSTOP)
    _, status = os.waitpid(child.pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):
        striker.strike("the hook has ended")
        return os.waitstatus_to_exitcode(status)
    step = "the hook has not asked"
    if vdevices(run_dir) != before:
        step = "the vdevice exists"
    if has_mounts(json.loads(state)["pid"]):
        step = "mounts exist"
    striker.strike(step, child.pid if striker.who == "hook" else None)
    if striker.who == "hook":  # a runtime sees its hook end by a signal
        os.kill(os.getpid(), signal.SIGKILL)
    os.kill(child.pid, signal.SIGCONT)
    return os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])


def calls_in(specification):
    for device in specification.get("devices", []):  # of CDI
        yield from device["containerEdits"]["hooks"]
    for calls in specification.get("hooks", {}).values():
        yield from calls


def change_calls(path, directory, hook):
    with open(path, encoding="utf-8") as file:
        specification = json.load(file)
    for call in calls_in(specification):
        if call["path"] == hook:
            strike = os.path.realpath(__file__)
            call["path"], call["args"] = strike, [strike, directory, hook, *call["args"][1:]]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(specification, file)


def main():
    if sys.argv[1] == "--call":
        return change_calls(*sys.argv[2:])
    directory, program, *arguments = sys.argv[1:]
    hook = [program, *arguments]
    stage = "poststop" if arguments[-1] == "poststop" else "createRuntime"
    try:
        with open(f"{directory}/plan", encoding="ascii") as file:
            who, moment, delay = file.read().split()
    except FileNotFoundError:
        moment = None
    if moment is None or (moment == "poststop") != (stage == "poststop"):
        os.execv(program, hook)
    os.unlink(f"{directory}/plan")  # the runtime may run the hook again
    striker = Striker(directory, who)
    state = sys.stdin.buffer.read()
    status = None
    if moment in ("before", "poststop"):
        striker.strike("before the hook" if moment == "before" else "before poststop")
    elif moment == "inside":
        status = run_inside(striker, hook, state, arguments[arguments.index("--run-dir") + 1], float(delay))
    if status is None:
        status = subprocess.run(hook, input=state, check=False).returncode
    if moment == "after":
        striker.strike("the hook has ended")
    sys.exit(status if status >= 0 else 128 - status)


main()
