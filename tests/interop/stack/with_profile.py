#!/usr/bin/env python3
"""with_profile.py PROFILE COMMAND...: runs a command as Podman and CRI-O run a container's programs: with the
capabilities that both leave and behind the seccomp filter of PROFILE, in their JSON."""

import ctypes
import json
import os
import sys

import seccomp

# What a container's root has (docker run --help, capabilities(7)).
LEFT = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "FSETID": 4, "KILL": 5, "SETGID": 6, "SETUID": 7,
        "SETPCAP": 8, "NET_BIND_SERVICE": 10, "SYS_CHROOT": 18, "MKNOD": 27, "AUDIT_WRITE": 29,
        "SETFCAP": 31}
OPERATORS = {"SCMP_CMP_EQ": seccomp.EQ, "SCMP_CMP_NE": seccomp.NE,
             "SCMP_CMP_MASKED_EQ": seccomp.MASKED_EQ}
PR_CAPBSET_DROP, LAST = 24, 40


def applies(rule):
    included, excluded = rule.get("includes") or {}, rule.get("excludes") or {}
    has = lambda cap: cap.removeprefix("CAP_") in LEFT
    return ("amd64" in included.get("arches", ["amd64"])
            and all(map(has, included.get("caps", [])))
            and "amd64" not in excluded.get("arches", [])
            and not any(map(has, excluded.get("caps", []))))


def action(of, number):
    return {"SCMP_ACT_ALLOW": seccomp.ALLOW, "SCMP_ACT_ERRNO": seccomp.ERRNO(number)}[of]


def argument(one):
    operator = OPERATORS[one["op"]]
    if operator == seccomp.MASKED_EQ:
        return seccomp.Arg(one["index"], operator, one["value"], one["valueTwo"])
    return seccomp.Arg(one["index"], operator, one["value"])


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        profile = json.load(file)
    default = profile["defaultAction"], profile.get("defaultErrnoRet", 1)
    rules = seccomp.SyscallFilter(action(*default))
    for rule in filter(applies, profile["syscalls"]):
        what = rule["action"], rule.get("errnoRet", 1)
        if what == default:
            continue
        for name in rule["names"]:
            try:
                rules.add_rule(action(*what), name, *map(argument, rule.get("args") or []))
            except (RuntimeError, ValueError):  # a call that this libseccomp does not know
                pass
    libc = ctypes.CDLL(None)
    for capability in set(range(LAST + 1)) - set(LEFT.values()):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    rules.load()
    os.execvp(sys.argv[2], sys.argv[2:])


main()
