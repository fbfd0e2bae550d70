#!/usr/bin/env python3
"""headers.py BUILD: each header of the tree compiles when it is the only one included.

A header that its own .cc includes before all else needs no further proof than the build, if that compiles
the .cc by itself. Flags are those of the build: every include path and the standard found in
compile_commands.json.
"""

import concurrent.futures
import json
import os
import shlex
import shutil
import subprocess
import sys

import tree


def flags_of(build):
    """(compiler, flags) that suit every header: all include paths of all C++ compilations; and the sources that
    are compiled by themselves."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        commands = json.load(f)
    compiler, include, alone = "c++", [], set()
    for command in commands:
        words = shlex.split(command["command"])
        if not command["file"].endswith((".cc", ".cxx")):  # .cxx: several sources in one (unity)
            continue
        alone.add(os.path.realpath(command["file"]))
        while os.path.basename(words[0]) == "ccache":
            words.pop(0)
        compiler = words[0]
        for at, word in enumerate(words):
            flag = None
            if word == "-isystem":
                flag = ("-isystem", words[at + 1])
            elif word.startswith(("-I", "-D")) and len(word) > 2:
                flag = (word,)
            if flag and flag not in include:
                include.append(flag)
    return compiler, [word for flag in include for word in flag], alone


def is_proven_by_its_source(header, alone):
    source = os.path.join(tree.ROOT, header[:-2] + ".cc")
    if os.path.realpath(source) not in alone:
        return False
    with open(source, encoding="utf-8") as f:
        return next((line for line in f if line.startswith("#include")), "") == f'#include "{header}"\n'


def compile_alone(header, compiler, flags, build):
    """Into a file, because the compiler's cache (ccache) knows nothing of -fsyntax-only."""
    source = os.path.join(build, "headers", header + ".cc")
    os.makedirs(os.path.dirname(source), exist_ok=True)
    with open(source, "w", encoding="utf-8") as f:
        f.write(f'#include "{header}"\n')
    run = subprocess.run(
        [*compiler, "-std=c++20", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror",
         "-Wno-unused-const-variable", *flags, "-I", tree.ROOT, "-c", source, "-o", source + ".o"],
        capture_output=True, text=True, cwd=build,
        env={**os.environ, "CCACHE_BASEDIR": tree.ROOT, "CCACHE_NOHASHDIR": "1"})
    return f"{header} does not compile alone:\n{run.stderr}" if run.returncode else None


if __name__ == "__main__":
    build = os.path.realpath(sys.argv[1])
    compiler, flags, alone = flags_of(build)
    cached = shutil.which("ccache")
    compiler = [cached, compiler] if cached else [compiler]
    headers = [f for f in tree.files() if f.endswith(".h")]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        open_ones = [h for h in headers if not is_proven_by_its_source(h, alone)]
        results = pool.map(lambda h: compile_alone(h, compiler, flags, build), open_ones)
    tree.finish([r for r in results if r], f"each of {len(headers)} headers compiles alone")
