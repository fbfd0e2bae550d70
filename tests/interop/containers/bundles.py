#!/usr/bin/env python3
"""bundles.py DIRECTORY NUMBER HOOK... -- COMMAND...: makes bundles of runc (OCI runtime specification 1.0) DIRECTORY/1
to DIRECTORY/NUMBER. The words HOOK are the hook's, without its stage; the class is `default`.

Container I has the root DIRECTORY/I/root, the network namespace DIRECTORY/I/netns, the control group GROUP/I of the
environment, and the directory DIRECTORY/shared as /shared."""
import json
import os
import subprocess
import sys


def bundle(spec, directory, number, hook, command):
    place = f"{directory}/{number}"
    spec["process"].update(terminal=False, args=command, env=["PATH=/usr/sbin:/usr/bin:/sbin:/bin", f"NUMBER={number}"])
    spec["process"].pop("rlimits", None)
    spec["root"] = {"path": "root", "readonly": False}
    spec["linux"]["cgroupsPath"] = f"{os.environ['GROUP']}/{number}"
    for namespace in spec["linux"]["namespaces"]:
        if namespace["type"] == "network":
            namespace["path"] = f"{place}/netns"
    spec["mounts"].append({"destination": "/shared", "type": "bind", "source": f"{directory}/shared",
                           "options": ["rbind", "rw"]})
    call = lambda *stage: [{"path": hook[0], "args": [*hook, *stage], "env": ["PATH=/usr/bin"], "timeout": 30}]
    spec["hooks"] = {"createRuntime": call("createRuntime", "default"), "poststop": call("poststop")}
    with open(f"{place}/config.json", "w", encoding="ascii") as file:
        json.dump(spec, file)


def main():
    directory, number, *words = sys.argv[1:]
    end = words.index("--")
    for i in range(1, int(number) + 1):
        os.makedirs(f"{directory}/{i}", exist_ok=True)
    subprocess.run(["runc", "spec", "-b", f"{directory}/1"], check=True)
    with open(f"{directory}/1/config.json", encoding="ascii") as file:
        text = file.read()
    for i in range(1, int(number) + 1):
        bundle(json.loads(text), directory, i, words[:end], words[end + 1:])


main()
