"""Which tests of which build `tests/run` takes; `tests/run --all` takes all of them.

What a test finds depends on the build (release, dev, tsan), on who executes what is posted (direct,
mediated) and on the user (root, nobody). Few mistakes need three of these at once, so each test meets
each pair of them where that is cheap, each value of them where it is not, and one where the others
would show nothing else:

    release  direct    nobody      dev  direct    root
    release  mediated  root        dev  mediated  nobody

Unit tests and fuzz targets run where sanitizers watch; what lies in wait for silence, of packages or
of Debian's programs, runs where no sanitizer changes the times."""

import re

# The first that matches a test's name says in which builds it runs. What none matches runs in all.
RULES = [(re.compile(pattern), builds.split()) for pattern, builds in [
    # What takes long, with each build, mode and user.
    (r"conformance\.(memory|stress)\.direct\.nobody", "release"),
    (r"conformance\.(memory|stress)\.mediated\.root", "dev"),
    (r"conformance\.(memory|stress)\.", ""),
    # Each pair.
    (r"(conformance|integration\.pingpong)\..*(direct\.nobody|mediated\.root)$", "release"),
    (r"(conformance|integration\.pingpong)\..*(direct\.root|mediated\.nobody)$", "dev"),
    (r"integration\.(life|kill)\.direct|integration\.devinfo\.nobody", "release"),
    (r"integration\.(life|kill)\.mediated|integration\.devinfo\.root", "dev"),
    # Each verb with either build, mode and user, but not with all of them.
    (r"integration\.perftest\.(write\.direct\.nobody|send\.mediated\.root|atomic\.direct\.root)$",
     "release"),
    (r"integration\.perftest\.(read\.mediated\.nobody|send\.direct\.root)$", "dev"),
    (r"integration\.perftest\.", ""),
    (r"integration\.(rdmacm|rdmacm_calls|rdmacm_storm|rsocket_signals)\.direct", "release"),
    (r"integration\.(rdmacm|rdmacm_calls|rdmacm_storm|rsocket_signals)\.mediated", "dev"),
    (r"integration\.rdmacm_takeover", "release"),  # a storm of it is tsan's
    (r"integration\.(rsocket|rsocket_datagram)\.mediated", "release"),
    (r"integration\.rsocket\.direct", "dev"),
    (r"integration\.rsocket_udpong\.direct", "release"),
    (r"integration\.(rsocket_datagram|rsocket_udpong)\.", ""),
    (r"integration\.takeover\.direct", "release"),
    (r"integration\.takeover\.mediated", ""),  # but by tsan's daemon
    (r"integration\.takeover_kinds\.direct", "release"),
    (r"integration\.takeover_kinds\.mediated", "dev"),
    # Attacks: an outcome does not depend on the sanitizers. By root they are tsan's.
    (r"integration\.hostile\.nobody", "dev"),
    (r"integration\.hostile\.root", ""),
    (r"integration\.hostile_(exit|hangs|identity)", "dev"),
    (r"integration\.hostile_", "release"),
    # It measures times, or that nothing happens.
    (r"integration\.(idle|bandwidth|standstill|packages|observe|slow_disk)", "release"),
    (r"integration\.(docs|quickstart|tarball|sandbox|doctor|identity)", "release"),
    (r"integration\.newer_calls\.direct", "release"),
    (r"integration\.newer_calls\.mediated", "dev"),
    (r"integration\.sweep", ""),  # but by tsan's daemon
    (r"integration\.(churn|environment|bad_input|c_api|quota|isolation|raw_qp1|restore)",
     "dev"),
    # The same sources, watched by ASan and UBSan.
    (r"fuzz\.", "dev"),
]]

def chosen(build, name, labels):
    if build == "tsan":
        return name != "integration.churn" and bool({"integration", "threads"} & set(labels))
    for pattern, builds in RULES:
        if pattern.match(name):
            return build in builds
    return "unit" not in labels or build == "dev"
