#!/usr/bin/env python3
"""helper_program.py HELPER DAEMON: vrdmad-helper, whose processes have privileges, contains only what they
need: a few libraries, and nothing of the large ones that vrdmad links."""

import re
import subprocess
import sys

# Of a program that is not static.
LIBRARIES = re.compile(r"(libc|libm|libgcc_s|libstdc\+\+|libcap-ng|libseccomp|libnl-3|libasan|libubsan|libtsan|ld-linux.*)\.so\.")
LARGE = {"gRPC": "grpc", "Protobuf": "google::protobuf", "SQLite": "sqlite3_", "Prometheus": "prometheus::",
         "OpenSSL": "SSL_CTX_new", "spdlog": "spdlog::", "CLI11": "CLI::", "the daemon's control": "vrdma::vrdmad::Daemon::"}


def libraries(program):
    text = subprocess.run(["readelf", "-W", "--dynamic", program], check=True, capture_output=True, text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", text)


def contained(program):
    """Which of LARGE have a symbol in the program, or one that it needs."""
    text = subprocess.run(["nm", "--demangle", program], check=True, capture_output=True, text=True).stdout
    return {name for name, word in LARGE.items() if word in text}


def main(helper, daemon):
    if missed := LARGE.keys() - contained(daemon):
        sys.exit(f"{daemon}: no symbols of {', '.join(missed)} are found, so their absence elsewhere shows nothing")
    needed = libraries(helper)
    print(f"{helper}: needs {', '.join(needed) or 'no shared library'}")
    wrong = [name for name in needed if not LIBRARIES.match(name)] + sorted(contained(helper))
    for name in wrong:
        print(f"{helper}: contains {name}, which no helper process needs")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
