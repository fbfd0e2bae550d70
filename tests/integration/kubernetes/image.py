#!/usr/bin/env python3
"""image.py OUT.tar NAME PROGRAM...: an OCI image of programs of this host and their libraries, for `ctr images import`.

Nothing is downloaded. Its command is `sleep 100000`, so that it also serves as the image of a sandbox."""
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile

LIBRARIES = f"/lib/{os.uname().machine}-linux-gnu"
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


def files_of(programs):
    files = set()  # not libdl.so.2, which the drop-in libraries need: the hook adds it
    for program in programs:
        path = shutil.which(program)
        if not path:
            sys.exit(f"image.py: {program} is not installed")
        files.update([path, os.path.realpath(path)])
        listed = subprocess.run(["ldd", os.path.realpath(path)], capture_output=True, text=True, check=False).stdout
        for line in listed.splitlines():
            words = line.split()
            library = words[2] if "=>" in words and len(words) > 2 else words[0]
            if library.startswith("/"):
                files.add(library)
    return files


def add(tar, path, data=None, mode=0o644, **attributes):
    entry = tarfile.TarInfo(path)
    entry.mode = mode
    for name, value in attributes.items():
        setattr(entry, name, value)
    entry.size = len(data) if data is not None else 0
    tar.addfile(entry, io.BytesIO(data) if data is not None else None)


def layer_of(programs):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path in ("etc", "tmp", "proc", "sys", "dev", "run", "var", "usr", "usr/bin", "usr/sbin", "usr/lib",
                     "usr" + LIBRARIES, "usr/lib64"):
            add(tar, path, mode=0o1777 if path == "tmp" else 0o755, type=tarfile.DIRTYPE)
        for path in ("bin", "sbin", "lib", "lib64"):
            add(tar, path, type=tarfile.SYMTYPE, linkname="usr/" + path)
        add(tar, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n")
        for path in sorted(files_of(programs)):
            with open(path, "rb") as file:
                add(tar, (path if path.startswith("/usr/") else "/usr" + path)[1:], file.read(), 0o755)
    return out.getvalue()


def described(kind, data, **more):
    return {"mediaType": "application/vnd.oci.image." + kind, "digest": "sha256:" + hashlib.sha256(data).hexdigest(),
            "size": len(data), **more}


def main():
    path, name, *programs = sys.argv[1:]
    layer = layer_of(programs)
    packed = described("layer.v1.tar", layer)
    config = json.dumps({
        "architecture": ARCHITECTURE, "os": "linux", "rootfs": {"type": "layers", "diff_ids": [packed["digest"]]},
        "config": {"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], "Cmd": ["sleep", "100000"]}}).encode()
    manifest = json.dumps({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": described("config.v1+json", config), "layers": [packed]}).encode()
    names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rsplit(":", 1)[-1]}
    index = {"schemaVersion": 2, "manifests": [described("manifest.v1+json", manifest, annotations=names)]}
    with tarfile.open(path, "w") as tar:
        add(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        add(tar, "index.json", json.dumps(index).encode())
        for blob in (layer, config, manifest):
            add(tar, "blobs/sha256/" + hashlib.sha256(blob).hexdigest(), blob)


main()
