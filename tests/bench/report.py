"""Results: what was measured, as JSON, and the tables made of it."""

import json
import os
import platform
import statistics
import time

import operators
import plot
from containers import ONE_TENANT, POSIX, TCP


def figure(value):
    """Three digits that count, and never an exponent."""
    if value == 0:
        return "0"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def spread(values):
    """Median, and in brackets the least and the greatest."""
    if len(values) == 1:
        return figure(values[0])
    return f"{figure(statistics.median(values))} ({figure(min(values))}–{figure(max(values))})"


def reached(value, goal):
    return value <= goal[1] if goal[0] == "<=" else value >= goal[1]


def rows_of(metric):
    """Metric, ours, peer, ratio, goal, reached, others (percent of CPU): a row for each peer."""
    unit = " " + metric["unit"]
    ours = metric["ours"]
    title = metric["title"]
    others = f"{statistics.median([entry['others'] for entry in metric['loads']]):.0f} %"
    goal = metric["goals"].get("")
    verdict = [f"{goal[0]} {figure(goal[1])}{unit}",
               "yes" if reached(statistics.median(ours), goal) else "no"] if goal else ["", ""]
    if goal or not metric["peers"]:
        yield [title, spread(ours) + unit, "", "", *verdict, others]
    for peer, theirs in metric["peers"].items():
        ratios = [a / b for a, b in zip(ours, theirs)]
        goal = metric["goals"].get(peer)
        verdict = [f"{goal[0]} {goal[1]}",
                   "yes" if reached(statistics.median(ratios), goal) else "no"] if goal else ["", ""]
        yield [title, spread(ours) + unit, f"{peer}: {spread(theirs)}{unit}", spread(ratios),
               *verdict, others]


def containers_table(entry):
    """Each way of communication beside posix shared memory and beside TCP."""
    rows = []
    for test in entry["containers"]:
        values, goal = test["values"], test["goal"]
        others = statistics.median([load["others"] for load in test["loads"]])
        for way, numbers in values.items():
            ratios = {peer: [a / b for a, b in zip(numbers, values[peer])] for peer in (POSIX, TCP)}
            verdict = [f"{goal[0]} {goal[1]}", "yes" if reached(statistics.median(ratios[POSIX]), goal) else "no"]
            rows.append([test["title"], way, f"{spread(numbers)} {test['unit']}",
                         *(spread(ratios[peer]) if way != peer else "" for peer in (POSIX, TCP)),
                         *(verdict if way in ONE_TENANT else ["", ""]), f"{others:.0f} %"])
    return ("### UCX between two containers\n\n"
            + table(["test", "over", "result", "ratio to posix", "ratio to TCP", "goal, to posix", "reached", "others"],
                    rows)
            + f"\n\nRounds: {len(numbers)}. {load_of(entry['loads']).capitalize()}.\n")


def each(row):
    """A row of a growth with memory divided by the count."""
    return {name: value / row["count"] if name.endswith("_kib") else value
            for name, value in row.items()}


def growth_verdicts(growth):
    """Rows as of a metric, for the goals of the greatest count."""
    last = each(growth["rows"][-1])
    for title, unit, column, goal in growth["goals"]:
        yield [title.format(f"{last['count']:,}"), f"{figure(last[column])} {unit}", "", "",
               f"{goal[0]} {goal[1]} {unit}", "yes" if reached(last[column], goal) else "no",
               f"{growth['loads'][0]['others']:.0f} %"]


def load_of(entries):
    """What the loads of some rounds were, in words."""
    all_loads = [moment for entry in entries for moment in (entry["before"], entry["after"])]
    if not all_loads:
        return "nothing was measured"
    loads = [moment["load"] for moment in all_loads]
    waits = [moment["pressure"] for moment in all_loads if moment["pressure"] is not None]
    others = [entry["others"] for entry in entries]
    text = f"load average {min(loads):.1f}–{max(loads):.1f}"
    if waits:
        text += f", CPU pressure (avg10) {min(waits):.0f}–{max(waits):.0f} %"
    return text + (f", of the processors others took {statistics.median(others):.0f} % "
                   f"({min(others):.0f}–{max(others):.0f} %)")


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


GROWTH_COLUMNS = {"count": "count", "median_us": "creation, median us", "mean_us": "mean us",
                  "daemon_kib": "vrdmad, KiB each", "process_kib": "process, KiB each",
                  "idle_ticks": "CPU ticks in idle 5 s", "idle_wakes": "woken in idle 5 s"}


def growth_table(growth):
    columns = [name for name in GROWTH_COLUMNS if name in growth["rows"][0]]
    rows = []
    for row in growth["rows"]:
        numbers = each(row)
        rows.append([figure(numbers[name]) if isinstance(numbers[name], float)
                     else f"{numbers[name]:,}" for name in columns])
    last = growth["deletion"]
    return (f"### {growth['what']}\n\n" + table([GROWTH_COLUMNS[name] for name in columns], rows)
            + f"\n\nA deletion takes {figure(last['deletion_mean_us'])} us (mean). "
            + f"{load_of(growth['loads']).capitalize()}.\n")


VICTIM_COLUMNS = {"median": "median", "p99": "p99", "p999": "p99.9", "max": "max"}


def victims_table(entry):
    header = ["attack", "fabric"] + [f"{verb} {title}" for verb in ("WRITE", "open")
                                     for title in VICTIM_COLUMNS.values()]
    rows = [[row["title"], row["fabric"] or "–"] +
            [figure(row[what][column]) for what in ("write", "open") for column in VICTIM_COLUMNS]
            for row in entry["victims"]]
    return ("### neighbours (us)\n\n" + table(header, rows)
            + f"\n\n{entry['seconds']} s for each. {load_of(entry['loads']).capitalize()}. What others "
              "took includes the attackers.\n")


def operators_table(entry):
    found = entry["operators"]
    names = [name for name in found["cost"] if name != "pictures"]
    many = f"{entry['vdevices']:,} vdevices of {entry['of']} tenants"
    rows = [[title] + [spread(found["tenants"][name][time]) for time in operators.TIMES]
            for name, title in operators.BESIDE.items()]
    return (f"### an open page with {many} (percent of a processor)\n\n"
            + table(names + ["pictures a second"], [[spread(found["cost"][name]) for name in [*names, "pictures"]]])
            + f"\n\n### tenants beside an operator with {many} (us)\n\n"
            + table(["beside", *operators.TIMES], rows)
            + f"\n\n{len(found['tenants']['alone'][operators.TIMES[0]])} rounds. "
            + f"{load_of(entry['loads']).capitalize()}.\n")


STARTS = {"first": "no worker runs: it is started", "later": "the worker runs"}


def starts_table(entry):
    rows = [[title] + [figure(entry["starts"][what][column]) for column in VICTIM_COLUMNS]
            for what, title in STARTS.items()]
    return ("### listing and opening a device (us)\n\n"
            + table(["before", *VICTIM_COLUMNS.values()], rows)
            + f"\n\n{entry['starts']['first']['count']} starts. "
            + f"{load_of(entry['loads']).capitalize()}.\n")


def gaps_table(entry):
    killed = [name for name in entry["gaps"][0] if name != "sessions"]
    rows = [[f"{row['sessions']:,}"] + [spread(row[name]) for name in killed]
            for row in entry["gaps"]]
    return ("### longest gap of mediated 8-byte WRITEs (ms)\n\n"
            + table(["sessions"] + [f"{name} killed" for name in killed], rows)
            + f"\n\n{len(entry['gaps'][0][killed[0]])} kills for each. "
            + f"{load_of(entry['loads']).capitalize()}.\n")


def sizes_table(kind, points):
    names = list(points[0]["values"])
    rows = [[f"{point['size']:,}"] + [spread(point["values"][name]) for name in names]
            for point in points]
    unit = {"latency": "half round trip, us", "bandwidth": "MiB/s"}[kind]
    loads = [entry for point in points for entry in point["loads"]]
    return (f"### {kind} over sizes ({unit})\n\n" + table(["bytes", *names], rows)
            + f"\n\n{load_of(loads).capitalize()}.\n")


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


class Results:
    """The content of DIR/results.json; `add` keeps what it has already."""

    def __init__(self, folder, add):
        self.folder = folder
        self.path = os.path.join(folder, "results.json")
        self.data = {"entries": {}}
        if add and os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                self.data = json.load(file)

    def describe(self, rounds, quick):
        self.data |= {
            "date": time.strftime("%Y-%m-%d", time.gmtime()), "rounds": rounds, "quick": quick,
            "processor": processor(), "processors": os.cpu_count(),
            "kernel": " ".join(platform.uname()[i] for i in (0, 2)),
        }

    def put(self, key, entry):
        self.data["entries"][key] = entry

    def markdown(self, order):
        entries = [self.data["entries"][key] for key in order if key in self.data["entries"]]
        metrics = [entry for entry in entries if "ours" in entry]
        growths = [entry for entry in entries if "rows" in entry]
        parts = [f"{self.data['date']}, {self.data['processor']}, {self.data['processors']} "
                 f"processors, {self.data['kernel']}."]
        if self.data["quick"]:
            parts.append("**Few iterations: these numbers only show that the measuring works.**")
        if metrics:
            rounds = sorted({len(metric["ours"]) for metric in metrics})
            loads = [load for metric in metrics for load in metric["loads"]]
            parts.append(f"Rounds: {', '.join(map(str, rounds))}; {load_of(loads)}.")
        rows = [row for metric in metrics for row in rows_of(metric)]
        rows += [row for growth in growths for row in growth_verdicts(growth)]
        if rows:
            parts.append(table(
                ["metric", "ours", "peer", "ratio", "goal", "reached", "others"], rows))
        for kind in ("latency", "bandwidth"):
            points = [entry for entry in entries if entry.get("plot") == kind]
            if points:
                parts.append(sizes_table(kind, points))
        parts += [growth_table(growth) for growth in growths]
        parts += [victims_table(entry) for entry in entries if "victims" in entry]
        parts += [containers_table(entry) for entry in entries if "containers" in entry]
        parts += [operators_table(entry) for entry in entries if "operators" in entry]
        parts += [starts_table(entry) for entry in entries if "starts" in entry]
        parts += [gaps_table(entry) for entry in entries if "gaps" in entry]
        return "\n\n".join(part.strip() for part in parts) + "\n"

    def write(self, order):
        os.makedirs(self.folder, exist_ok=True)
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump(self.data, file, indent=1, ensure_ascii=False)
        text = self.markdown(order)
        with open(os.path.join(self.folder, "results.md"), "w", encoding="utf-8") as file:
            file.write(text)
        for name, drawing in plot.drawings(self.data["entries"].values()):
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                file.write(drawing)
        print(text)
