#!/usr/bin/env python3
"""drop_in_load.py LIBRARY: programs of others load it and do as they do with the real library.

Each program runs twice, with the real library and with ours in front of it, with the run
directory of a vrdmad that has no virtual device. Exit status and output must be the same. LD_BIND_NOW
makes the loader resolve every symbol, also those that libmlx5 and libefa want for themselves.
Then once more as if no real library were installed: what is ours alone must still work.
"""

import os
import subprocess
import sys
import tempfile

REAL = [f"{d}/libibverbs.so.1" for d in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                                         "/usr/lib64", "/usr/lib")]
PYTHON = "/usr/bin/python3"  # Debian's, for which python3-pyverbs is built
PYVERBS = """
import sys
try:
    import pyverbs
except ImportError:
    sys.exit(77)
import pyverbs.device, pyverbs.pd, pyverbs.cq, pyverbs.qp, pyverbs.mr, pyverbs.utils
import pyverbs.providers.mlx5.mlx5dv, pyverbs.providers.efa.efadv
print(pyverbs.utils.qp_state_to_str(3))
try:
    print(pyverbs.device.get_device_list())
except Exception as error:
    print(error)
"""
PROGRAMS = [
    ["ibv_devices"],
    ["ibv_devinfo"],
    ["ibv_devinfo", "-d", "none"],
    ["ibv_rc_pingpong"],
    ["ib_write_lat", "--version"],
    ["ib_write_lat", "--help"],
    ["ib_send_bw", "-d", "none"],
    [PYTHON, "-c", PYVERBS],
    # A library that links libibverbs itself, opened by a program that does not.
    [PYTHON, "-c", "import ctypes; print(ctypes.CDLL('librdmacm.so.1').rdma_create_event_channel())"],
    [PYTHON, "-c", "import ctypes; ctypes.CDLL('libmlx5.so.1'); ctypes.CDLL('libefa.so.1'); print('ok')"],
]
ALONE = """
import ctypes
ibverbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)
ibverbs.ibv_wc_status_str.restype = ctypes.c_char_p
ibverbs.ibv_get_device_list.restype = ctypes.c_void_p
assert ibverbs.ibv_wc_status_str(5) == b"Work Request Flushed Error"
count = ctypes.c_int(7)
assert ibverbs.ibv_get_device_list(ctypes.byref(count)) is None
assert ctypes.get_errno() == 38 and count.value == 0, ctypes.get_errno()
assert ibverbs.ibv_fork_init() == 0
assert ibverbs.ibv_is_fork_initialized() == 2
assert ibverbs.ibv_cmd_alloc_pd(0, 0, 0, 0, 0, 0) == 38
assert ibverbs.ibv_import_device(-1) == 0
print("ok")
"""


def run(command, library_path, run_dir, **more):
    env = dict(os.environ, LD_BIND_NOW="1", VRDMA_RUN_DIR=run_dir, LC_ALL="C", **more)
    env.pop("LD_LIBRARY_PATH", None)
    if library_path:
        env["LD_LIBRARY_PATH"] = library_path
        if os.environ.get("VRDMA_TEST_PRELOAD"):
            env["LD_PRELOAD"] = os.environ["VRDMA_TEST_PRELOAD"]
            env["ASAN_OPTIONS"] = "detect_leaks=0"
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        return None
    return done.returncode, done.stdout, done.stderr


def main(library):
    if not any(os.path.exists(path) for path in REAL):
        print("there is no real libibverbs.so.1 here to compare with")
        return 77
    ours, failures, compared = os.path.dirname(library), [], 0
    with tempfile.TemporaryDirectory() as run_dir:
        os.mkdir(os.path.join(run_dir, "netns"))  # as a vrdmad makes it
        for command in PROGRAMS:
            name = " ".join(word.strip().splitlines()[0] for word in command)
            real = run(command, None, run_dir)
            if real is None or real[0] == 77:
                print(f"not installed here: {name}")
                continue
            compared += 1
            drop_in = run(command, ours, run_dir)
            if drop_in != real:
                failures.append(f"{name}\n  real library: {real}\n  ours:         {drop_in}")
        alone = run([PYTHON, "-c", ALONE], ours, run_dir, VRDMA_REAL_LIBIBVERBS="/nonexistent")
        if alone[:2] != (0, "ok\n"):
            failures.append(f"without a real library: {alone}")
    for failure in failures:
        print(failure)
    print(f"{compared} programs compared, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
