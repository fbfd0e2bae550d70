"""Results: what was measured, as JSON, and the tables made of it."""

import json
import os
import platform
import statistics
import time


def figure(value):
    """Three digits that count, and never an exponent."""
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
    """Metric, ours, peer, ratio, goal, reached: a row for each peer."""
    unit = " " + metric["unit"]
    ours = metric["ours"]
    title = metric["title"]
    goal = metric["goals"].get("")
    verdict = [f"{goal[0]} {figure(goal[1])}{unit}",
               "yes" if reached(statistics.median(ours), goal) else "no"] if goal else ["", ""]
    if goal or not metric["peers"]:
        yield [title, spread(ours) + unit, "", "", *verdict]
    for peer, theirs in metric["peers"].items():
        ratios = [a / b for a, b in zip(ours, theirs)]
        goal = metric["goals"].get(peer)
        verdict = [f"{goal[0]} {goal[1]}",
                   "yes" if reached(statistics.median(ratios), goal) else "no"] if goal else ["", ""]
        yield [title, spread(ours) + unit, f"{peer}: {spread(theirs)}{unit}", spread(ratios),
               *verdict]


def load_of(entries):
    """What the loads of some rounds were, in words."""
    all_loads = [moment for entry in entries for moment in (entry["before"], entry["after"])]
    if not all_loads:
        return "nothing was measured"
    loads = [moment["load"] for moment in all_loads]
    waits = [moment["pressure"] for moment in all_loads if moment["pressure"] is not None]
    text = f"load average {min(loads):.1f}–{max(loads):.1f}"
    return text + (f", CPU pressure (avg10) {min(waits):.0f}–{max(waits):.0f} %" if waits else "")


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


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
        self.data = {"metrics": {}}
        if add and os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                self.data = json.load(file)

    def describe(self, rounds, quick):
        self.data |= {
            "date": time.strftime("%Y-%m-%d", time.gmtime()), "rounds": rounds, "quick": quick,
            "processor": processor(), "processors": os.cpu_count(),
            "kernel": " ".join(platform.uname()[i] for i in (0, 2)),
        }

    def put_metric(self, metric):
        self.data["metrics"][metric["key"]] = metric

    def markdown(self, order):
        metrics = [self.data["metrics"][key] for key in order if key in self.data["metrics"]]
        loads = [entry for metric in metrics for entry in metric["loads"]]
        rounds = sorted({len(metric["ours"]) for metric in metrics})
        head = (f"{self.data['date']}, {self.data['processor']}, {self.data['processors']} "
                f"processors, {self.data['kernel']}; rounds: {', '.join(map(str, rounds))}; "
                f"{load_of(loads)}.")
        if self.data["quick"]:
            head += " **Few iterations: these numbers only show that the measuring works.**"
        return head + "\n\n" + table(
            ["metric", "ours", "peer", "ratio", "goal", "reached"],
            [row for metric in metrics for row in rows_of(metric)]) + "\n"

    def write(self, order):
        os.makedirs(self.folder, exist_ok=True)
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump(self.data, file, indent=1, ensure_ascii=False)
        text = self.markdown(order)
        with open(os.path.join(self.folder, "results.md"), "w", encoding="utf-8") as file:
            file.write(text)
        print(text)
