#!/usr/bin/env python3
"""Which tests of which build belong to which tier. `tiers.py --check BUILD` fails if a test of BUILD has no row.

    quick   tests/run --quick   a contributor's minutes: the preset dev alone
    gate    tests/run           what every change must pass; contains quick
    all     tests/run --all     everything; contains gate

What a test finds depends on the build (release, dev, tsan), on who executes what is posted (direct, mediated, over the
network) and on the user (root, nobody). Few mistakes need three of these at once, so --all meets each pair of them
where that is cheap, and the gate each value of them:

    release  direct    nobody      dev  direct    root
    release  mediated  root        dev  mediated  nobody

The gate has one test for each thing that must be real: a verb in each mode, the death of each process, a container, a
package. A new test runs in release alone; it runs under sanitizers (dev, tsan) where its row says so: where bytes of
others are parsed, where threads meet, or where memory is handed over. The last column of a row that is not in the
gate names the fault that only it would find."""

import re
import sys

import listing

TIERS = ["quick", "gate", "all"]

# (names, tier by build, fault). The first row that matches a name decides. "gate" alone is release's.
ROWS = [
    (r"lint\.", "release=gate dev=quick", ""),
    (r"fuzz\.", "dev=gate", ""),
    (r"integration\.netns\.", "dev=quick", ""),

    # Verbs: each group in each mode.
    (r"conformance\.stress\.(direct\.nobody|mediated\.root|network\.nobody)", "all",
     "wrong data only under many flows of all verbs at once"),
    (r"conformance\.stress\.", "never", ""),
    (r"conformance\.memory\.direct\.root", "never", ""),
    (r"conformance\.memory\.mediated\.nobody", "never", ""),
    (r"conformance\.support", "gate", ""),
    (r"conformance\.protection\.(direct\.root|mediated\.nobody)", "dev=quick", ""),
    (r"conformance\..*\.(direct\.root|mediated\.nobody)", "dev=all",
     "a wrong access of the library or of the worker that no wrong data shows"),
    (r"conformance\..*\.network", "release=gate dev=all", "the same of the RoCE engine"),
    (r"conformance\.", "gate", ""),
    (r"integration\.exchange\.(direct|mediated)", "release=all dev=all", "an order of all verbs of two sides that conformance lacks"),
    (r"integration\.exchange\.network", "release=gate dev=quick", ""),

    # Debian's programs.
    (r"integration\.pingpong\.(direct\.nobody|mediated\.root)", "gate", ""),
    (r"integration\.pingpong\.direct\.root", "dev=quick", ""),
    (r"integration\.pingpong\.", "dev=all", "a wrong access in a mediated ping-pong"),
    (r"integration\.perftest\.(write\.direct\.nobody|send\.mediated\.root)", "gate", ""),
    (r"integration\.perftest\.(read\.mediated\.nobody|atomic\.direct\.root)", "all", "perftest's READ or atomic alone fails"),
    (r"integration\.perftest\.", "never", ""),
    (r"integration\.devinfo\.nobody", "gate", ""),
    (r"integration\.devinfo\.root", "dev=quick", ""),
    (r"integration\.counters\.(direct|mediated)", "all", "a counter of one verb that another tool reads is wrong"),

    # rdma_cm and sockets over it.
    (r"integration\.rdmacm\.direct", "gate", ""),
    (r"integration\.rdmacm\.mediated", "dev=quick", ""),
    (r"integration\.rdmacm_calls\.mediated", "release=gate dev=all", ""),
    (r"integration\.rdmacm_calls\.direct", "all", "a call of rdma_cm whose answer depends on a direct link"),
    (r"integration\.rdmacm_storm", "release=all tsan=all", "10,000 connections exhaust something"),
    (r"integration\.rdmacm_takeover\.", "all", "a connection that is being made when its daemon is killed"),
    (r"integration\.rsocket\.mediated", "gate", ""),
    (r"integration\.rsocket\.direct", "dev=quick", ""),
    (r"integration\.rsocket_datagram\.direct", "gate", ""),
    (r"integration\.(rsocket_datagram|rsocket_udpong)\.", "all", "datagrams of sockets of another user, and of udpong"),
    (r"integration\.rsocket_signals\.", "release=all dev=all", "a signal in a socket call"),
    (r"integration\.newer_calls\.", "release=all dev=all", "calls that Debian 12 has not"),
    (r"integration\.raw_qp1", "all", "a MAD of a raw queue pair 1 that is forged"),

    # The daemon's ends and successors. Each type of process is killed once in the gate.
    (r"integration\.processes", "gate", ""),
    (r"integration\.takeover_kinds\.mediated", "dev=quick", ""),
    (r"integration\.takeover_kinds\.direct", "gate", ""),
    (r"integration\.takeover\.mediated", "release=all tsan=all", "the accidents of a takeover, in a worker"),
    (r"integration\.takeover\.direct", "all",
     "the accidents of a takeover: a lost vdevice, a second death, a program that deceives or dies meanwhile"),
    (r"integration\.half_told", "gate", ""),
    (r"integration\.lacks", "gate", ""),
    (r"integration\.takeover_order", "all", "an order of messages that a takeover changes"),
    (r"integration\.workers", "gate", ""),
    (r"integration\.second_attempt\.", "all", "perftest -R, udpong, which do not wait for their peer"),
    (r"integration\.checkpoint(\.|_moves|_cm_moves)", "gate", ""),
    (r"integration\.(kills|roce_kills)", "release=all dev=all", "one moment of a kill that no script picks"),
    (r"integration\.kill\.direct", "gate", ""),
    (r"integration\.kill\.mediated", "dev=all", "the death of a program, as a worker sees it"),
    (r"integration\.life\.mediated", "dev=quick tsan=all", ""),
    (r"integration\.life\.direct", "release=all tsan=all", "a netdev that moves under a direct link"),
    (r"integration\.restore", "gate", ""),
    (r"integration\.stopped_worker", "gate", ""),
    (r"integration\.no_worker", "gate", ""),
    (r"integration\.(worker_pause|worker_groups|worker_memory|poison|standstill|while_it_waits|slow_disk|full_disk|mounted|"
     r"identity)$", "all", "what its first line says"),
    (r"integration\.(churn|sweep)", "release=all dev=all tsan=all", "a leak or a race that needs many rounds"),

    # What operators and tenants were promised.
    (r"integration\.apply", "gate", ""),
    (r"integration\.(quota|isolation|events)", "release=gate dev=all tsan=all", ""),
    (r"integration\.memory_calls\.", "gate", ""),
    (r"integration\.memory_cost$", "gate", ""),
    (r"integration\.(ends\.|completions\.|arguments|child_calls)", "gate", ""),
    (r"sim$", "release=gate dev=quick", ""),
    (r"integrity\.(direct|mediated|network|all|all\.reached)$", "gate", ""),
    (r"integrity\.", "all", "a wrong byte, or a completion that is lost or twice, in an order that no test names"),
    (r"integration\.bandwidth", "all", "a rate that is not kept, or not shared as it should be"),
    (r"integration\.(fabric_reach|on_the_wire|peers|bad_input|doctor|observe|lists|exported|c_api|oci_hook|claims|neighbour)$", "gate", ""),
    (r"integration\.remote_metrics", "release=gate dev=all", ""),
    (r"integration\.web$", "gate", ""),
    (r"integration\.web_page", "all", "what a browser refuses to do with the page, a picture that does not follow"),
    (r"integration\.prometheus", "all", "what a real Prometheus refuses to read, an expression of the dashboard that has no answer"),
    (r"integration\.environment", "dev=all", "an environment variable that the libraries misread"),
    (r"integration\.hook_socket", "release=all dev=all", "a container that asks while another one races it"),
    (r"integration\.idle", "all", "an idle vdevice that costs processor time"),
    (r"integration\.hostile\.nobody", "release=gate dev=all", ""),
    (r"integration\.hostile\.root", "all", "the same attacks by root of a namespace"),
    (r"integration\.hostile_many", "all", "the same attacks from many vdevices at once: a pool without a share of a user"),
    (r"integration\.hostile$", "tsan=all", "a race of the daemon that only an attack meets"),
    (r"integration\.hostile_(seats|share|anchors|becomes|hook_state|returns|quotas|stream)", "gate", ""),
    (r"integration\.hostile_", "all", "one attack each, which its name says"),

    # The network.
    (r"integration\.roce$", "gate", ""),
    (r"integration\.roce_changes", "all", "an address, a group, a route's MTU or a reach that changes under traffic"),
    (r"integration\.bad_wire", "gate", ""),
    (r"integration\.translated", "gate", ""),
    (r"integration\.(source_ports|flood)", "all", "how flows are spread; a flood that starves a neighbour"),

    (r"integration\.kubernetes\.(plugin\.1_36|pods|install|dra|claims)", "release=gate", ""),
    (r"integration\.kubernetes\.plugin\.1_20", "release=all", "a kubelet that dials later, asks for no options and ends no successor"),

    # What users install and read.
    (r"integration\.(sandbox\.nobody|packages|tarball|systemd|quickstart|docs\..*)$", "gate", ""),
    (r"integration\.contributing", "all", "a command of CONTRIBUTING.md"),
    (r"integration\.release", "all", "a file of a release that a bare Debian 12 or 13 cannot use"),
    (r"integration\.sandbox\.root", "all", "a sandbox that root starts"),

    # Programs of others.
    (r"interop\.(ucx|ucx_memory|openmpi)\.direct", "gate", ""),
    (r"interop\.containers\.podman\.crun", "gate", ""),
    (r"interop\.(vm|pvrdma)$", "gate", ""),
    (r"interop\.", "all", "that one program, engine or release"),
    (r"bench\.", "all", "a benchmark that does not run"),
]


def row_of(name):
    return next((row for row in ROWS if re.match(row[0], name)), None)


def tiers_of(name, labels):
    """The tier of a test by build; None if no row names it."""
    if "unit" in labels:
        return {"dev": "quick", **({"tsan": "all"} if "threads" in labels else {})}
    row = row_of(name)
    if row is None:
        return None
    return dict(one.split("=") for one in row[1].split()) if "=" in row[1] else {"release": row[1]}


def tier_of(build, name, labels):
    """The tier of a test in a build; "never" if it does not run there; None if no row names it. The build `coverage`
    stands for all others."""
    its = tiers_of(name, labels)
    if its is None or build != "coverage":
        return its and its.get(build, "never")
    return min(its.values(), key=[*TIERS, "never"].index)


def belongs(its, tier):
    return its != "never" and TIERS.index(its) <= TIERS.index(tier)


def check(build):
    tests = [(name, properties.get("LABELS", [])) for name, _, properties in listing.tests_of(build)]
    wrong = [f"{name}: tests/tiers.py has no row for it" for name, labels in tests if tier_of("release", name, labels) is None]
    wrong += [f"{names}: a row that leaves the gate names no fault" for names, tiers, fault in ROWS
              if not re.search("gate|quick|never", tiers) and not fault]
    print("\n".join(wrong) or f"{len(tests)} tests have tiers")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(check(sys.argv[2]))
