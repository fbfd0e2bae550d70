#!/usr/bin/env python3
"""The driver works: some metrics with few iterations, and what it writes is whole. No time is judged.

    smoke.py             most kinds of metrics
    smoke.py containers  two containers
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

HERE = os.path.dirname(os.path.realpath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)

import containers
import operators

# Beside each: the number of peers.
NETWORK = {"network_lat": 2, "network_asleep": 1, "network_write_1500": 2, "network_write_9000": 2, "network_rate": 1,
           "network_qps": 1, "network_loss": 1, "network_silent": 1}
METRICS = ["write_lat", "send_events", "post_send", "register_1m_again", "connections_direct",
           "latency_2", "latency_4096", *NETWORK, "scale_qps", "neighbours", "operators", "worker_start", "restart_gaps"]
FAULTS = []


def expect(true, what):
    if not true:
        FAULTS.append(what)


def driver(*words):
    done = subprocess.run([f"{HERE}/run", *words], capture_output=True, text=True)
    if done.returncode == 77:
        print(done.stdout, end="")
        sys.exit(77)
    return done


def numbers(values, count):
    return len(values) == count and all(isinstance(v, float) and v > 0 for v in values)


def check_json(folder):
    with open(f"{folder}/results.json", encoding="utf-8") as file:
        entries = json.load(file)["entries"]
    expect(sorted(entries) == sorted(METRICS), f"the JSON has {sorted(entries)}")
    for key, entry in entries.items():
        expect(entry["loads"] and all(load["before"]["load"] >= 0 and load["after"]["load"] >= 0
                                      and load["others"] >= 0 for load in entry["loads"]),
               f"{key}: the loads are not whole")
    expect(numbers(entries["write_lat"]["ours"], 1), "write_lat: not one number of vrdma")
    expect(len(entries["write_lat"]["peers"]) == 2, "write_lat: not two peers")
    for peer, values in entries["write_lat"]["peers"].items():
        expect(numbers(values, 1), f"write_lat: not one number of {peer}")
    expect(len(entries["latency_2"]["values"]) == 8, "latency_2: not eight curves")
    for name, values in entries["latency_2"]["values"].items():
        expect(numbers(values, 1), f"latency_2: not one number of {name}")
    for key, peers in NETWORK.items():
        expect(numbers(entries[key]["ours"], 1), f"{key}: not one number of vrdma")
        expect(len(entries[key]["peers"]) == peers and
               all(numbers(values, 1) for values in entries[key]["peers"].values()),
               f"{key}: not one number of each peer")
    victims = entries["neighbours"]["victims"]
    expect([row["attack"] for row in victims] == ["none"] + 2 * ["turns"] + 2 * ["connects"],
           "neighbours: not every attack in either fabric")
    for row in victims:
        for what in ("write", "open"):
            times = [row[what][name] for name in ("median", "p99", "p999", "max")]
            expect(row[what]["count"] > 0 and 0 < times[0] and times == sorted(times),
                   f"neighbours: {what} beside {row['attack']} is not whole")
    found = entries["operators"]["operators"]
    expect(all(len(values) == 1 and values[0] >= 0 for values in found["cost"].values()) and
           found["cost"]["pictures"][0] > 0, "operators: the page's cost is not whole")
    expect(list(found["tenants"]) == list(operators.BESIDE) and
           all(numbers(times[name], 1) for times in found["tenants"].values() for name in operators.TIMES),
           "operators: not one number of each time")
    starts = entries["worker_start"]["starts"]
    for what in ("first", "later"):
        times = [starts[what][name] for name in ("median", "p99", "p999", "max")]
        expect(0 < times[0] and times == sorted(times), f"worker_start: {what} is not whole")
    for row in entries["restart_gaps"]["gaps"]:
        expect(all(numbers(row[killed], 1) for killed in ("worker", "control", "broker")),
               f"restart_gaps: not one number for each kill with {row['sessions']} sessions")
    expect(all(row["count"] > 0 and row["median_us"] > 0 for row in entries["scale_qps"]["rows"]),
           "scale_qps: a row is not whole")


def check_table(text):
    for title in ("2 B write, half round trip", "2 B send, both asleep", "register the same 1 MiB",
                  "2 B send over a network", "1 MiB writes over a network of MTU 9,000"):
        expect(re.search(rf"^\| {title}.* (yes|no) \| \d+ % \|$", text, re.MULTILINE),
               f"the table has no verdict on: {title}")
    expect(text.count("load average") + text.count("Load average") == 7, "the loads are not told")
    expect(re.search(r"^\| 4,096 \|( [\d.,]+ \|){8}$", text, re.MULTILINE), "no row of 4,096 bytes")
    expect(len(re.findall(r"^\| (?:no attack|[^|]*1 MiB[^|]*|endless connections[^|]*) \| (?:–|same|other) "
                          r"\|( [\d.,]+ \|){8}$", text, re.MULTILINE)) == 5, "no row of neighbours")
    expect(len(re.findall(r"^\| (?:nothing|an operator at [a-z ]+) \|( [\d.,]+ \|){4}$", text, re.MULTILINE)) == 3,
           "no row of tenants beside an operator")
    expect(re.search(r"^\| no worker runs: it is started \|( [\d.,]+ \|){4}$", text, re.MULTILINE),
           "no row of starts of workers")
    expect(re.search(r"^\| 4 \|( [\d.,]+ \|){3}$", text, re.MULTILINE), "no row of gaps")
    expect(re.search(r"^\| 256 \|( [\d.,-]+ \|){4}$", text, re.MULTILINE), "no row of 256 qps")


def check_svg(path, curves, points):
    root = xml.parse(path).getroot()
    found = root.findall("{http://www.w3.org/2000/svg}polyline")
    expect(len(found) == curves, f"{path}: {len(found)} curves instead of {curves}")
    for curve in found:
        expect(len(curve.get("points").split()) <= points, f"{path}: a curve has too many points")
    labels = [text.text for text in root.findall("{http://www.w3.org/2000/svg}text")]
    expect(len(labels) > curves and all(labels), f"{path}: the labels are not whole")


def check_containers():
    reason = containers.missing()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        done = driver("--quick", "--rounds", "2", "--out", folder, "--only", "containers")
        if done.returncode:
            print(done.stdout, done.stderr)
            sys.exit(f"FAILED: tests/bench/run ends with status {done.returncode}")
        with open(f"{folder}/results.json", encoding="utf-8") as file:
            tests = json.load(file)["entries"]["containers"]["containers"]
    expect(len(tests) == 3, f"{len(tests)} tests instead of 3")
    for test in tests:
        expect(list(test["values"]) == list(containers.WAYS), f"{test['title']}: not every way")
        for way, values in test["values"].items():
            expect(numbers(values, 2), f"{test['title']}: not two numbers of {way}")
        expect(len(test["loads"]) == 2, f"{test['title']}: the loads are not whole")
    verdicts = re.findall(r"^\| .* \| (?:<=|>=) [\d.]+ \| (?:yes|no) \| \d+ % \|$", done.stdout, re.MULTILINE)
    expect(len(verdicts) == 6, f"{len(verdicts)} verdicts instead of 6: {done.stdout}")
    rows = re.findall(r"^\| [^|]+B tags?[^|]* \|", done.stdout, re.MULTILINE)
    expect(len(rows) == 18, f"{len(rows)} rows instead of 18: {done.stdout}")


def report():
    for fault in FAULTS:
        print(f"FAILED: {fault}")
    sys.exit(1 if FAULTS else 0)


def main():
    if sys.argv[1:] == ["containers"]:
        check_containers()
        report()
    expect(driver("--only", "no_such_metric").returncode == 1, "an unknown metric is not refused")
    with tempfile.TemporaryDirectory() as folder:
        # In two runs: the second one adds.
        for i, metrics in enumerate((METRICS[:2], METRICS[2:])):
            done = driver("--quick", "--rounds", "1", "--out", folder, "--only", ",".join(metrics),
                          *(["--add"] if i else []))
            if done.returncode:
                print(done.stdout, done.stderr)
                sys.exit(f"FAILED: tests/bench/run ends with status {done.returncode}")
        with open(f"{folder}/results.md", encoding="utf-8") as file:
            text = file.read()
        expect(done.stdout.strip() == text.strip(), "what is printed is not what is written")
        check_json(folder)
        check_table(text)
        check_svg(f"{folder}/latency.svg", 8, 2)
        check_svg(f"{folder}/qps.svg", 3, 2)
        names = sorted(os.listdir(folder))
        expect(names == ["latency.svg", "qps.svg", "results.json", "results.md"], f"files: {names}")
    with tempfile.TemporaryDirectory() as folder:
        done = driver("--quick", "--rounds", "2", "--out", folder, "--only", "open_device",
                      "--against", os.environ["VRDMA_BUILD"])
        with open(f"{folder}/results.json", encoding="utf-8") as file:
            opened = json.load(file)["entries"].get("open_device", {"ours": [], "peers": {}})
        expect(done.returncode == 0 and numbers(opened["ours"], 2) and
               numbers(opened["peers"].get("before", []), 2), "no other build is compared with")
    report()


if __name__ == "__main__":
    main()
