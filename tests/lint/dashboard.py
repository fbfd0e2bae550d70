#!/usr/bin/env python3
"""Checks packaging/grafana: the dashboard has the form that Grafana wants, and it and the alerts name only metrics that
there are (vrdmad/admin/metric_families.cc), with labels that there are.

    dashboard.py [ROOT]      check the tree
    dashboard.py --self-test check that the check finds what it should
"""

import copy
import json
import os
import re
import sys

import tree

# The fields that a dashboard of schema version 37 must have, with their types; (type, ...) any of these. A list with one
# element: a list of such.
TARGET = {"refId": str, "expr": str, "legendFormat": str, "datasource": {"type": str, "uid": str}}
THRESHOLDS = {"mode": str, "steps": [{"color": str, "value": (int, float, type(None))}]}
PANEL = {"id": int, "type": str, "title": str, "description": str, "datasource": {"type": str, "uid": str},
         "gridPos": {"h": int, "w": int, "x": int, "y": int}, "targets": [TARGET], "options": dict,
         "fieldConfig": {"defaults": {"unit": str}, "overrides": list}}
OPTIONS = {"timeseries": {"legend": {"displayMode": str, "placement": str, "showLegend": bool},
                          "tooltip": {"mode": str, "sort": str}},
           "stat": {"colorMode": str, "graphMode": str, "reduceOptions": {"calcs": [str], "values": bool}}}
VARIABLE = {"name": str, "type": str, "label": str, "query": (str, dict)}
DASHBOARD = {"uid": str, "title": str, "tags": [str], "timezone": str, "schemaVersion": int, "version": int,
             "refresh": str, "editable": bool, "time": {"from": str, "to": str}, "annotations": {"list": list},
             "templating": {"list": [VARIABLE]}, "panels": [PANEL]}
UNITS = {"short", "Bps", "ops", "pps", "percentunit", "s"}
WIDTH = 24
OF_VDEVICES = {"vdevice", "netns", "id", "tenant"}
INFO = {"parent", "fabric", "class", "namespace", "pod", "container"}
OF_PROMETHEUS = {"instance", "job"}


def mistakes_of_form(value, form, where):
    if isinstance(form, dict):
        if not isinstance(value, dict):
            return [f"{where} is no object"]
        found = [f"{where} has no '{key}'" for key in form if key not in value]
        return found + [m for key in form if key in value
                        for m in mistakes_of_form(value[key], form[key], f"{where}.{key}")]
    if isinstance(form, list):
        if not isinstance(value, list):
            return [f"{where} is no list"]
        return [m for i, each in enumerate(value) for m in mistakes_of_form(each, form[0], f"{where}[{i}]")]
    is_bool = isinstance(value, bool) and form is int  # to Python, it is an int too
    return [] if isinstance(value, form) and not is_bool else [f"{where} is a {type(value).__name__}"]


def families(source):
    """Name -> labels, from the table in metric_families.cc."""
    found = {}
    row = r'\{"(\w+)",\s*"(\w+)",\s*(k\w+),\s*(true|false),\s*"(\w*)",'
    for _, name, of, gauge, label in re.findall(row, source):
        total = "" if gauge == "true" else "_total"
        own = {label} - {""} | (INFO if name == "vdevice_info" else set())
        found[f"vrdma_{name}{total}"] = own | (set() if of == "kDaemon" else OF_VDEVICES)
        if of == "kVdevice":
            found[f"vrdma_tenant_{name}{total}"] = own | {"tenant"}
    return found


def mistakes_of_expression(text, known, where):
    found = []
    for name, selector in re.findall(r"\b(vrdma_\w+|up)\b(?:\{([^}]*)\})?", text):
        if name == "up":
            continue
        if name not in known:
            found.append(f"{where}: there is no metric {name}")
            continue
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector):
            if label not in known[name] | OF_PROMETHEUS:
                found.append(f"{where}: {name} has no label '{label}'")
    labels = set().union(*known.values()) | OF_PROMETHEUS
    for names in re.findall(r"\b(?:by|on|group_left)\s*\(([^)]*)\)", text):
        for label in filter(None, (word.strip() for word in names.split(","))):
            if label not in labels:
                found.append(f"{where}: nothing has the label '{label}'")
    return found


def mistakes_of_dashboard(board, known):
    found = mistakes_of_form(board, DASHBOARD, "dashboard")
    if found:
        return found
    variables = {each["name"] for each in board["templating"]["list"]}
    ids, cells = set(), {}
    for panel in board["panels"]:
        where = f"panel {panel['id']} '{panel['title']}'"
        if panel["id"] in ids:
            found.append(f"{where}: another one has its id")
        ids.add(panel["id"])
        if panel["type"] not in OPTIONS:
            found.append(f"{where}: type '{panel['type']}'")
            continue
        found += mistakes_of_form(panel["options"], OPTIONS[panel["type"]], f"{where}.options")
        defaults = panel["fieldConfig"]["defaults"]
        if panel["type"] == "stat":
            found += mistakes_of_form(defaults.get("thresholds"), THRESHOLDS, f"{where}.thresholds")
        if defaults["unit"] not in UNITS:
            found.append(f"{where}: unit '{defaults['unit']}'")
        at = panel["gridPos"]
        if at["x"] + at["w"] > WIDTH or not at["w"] or not at["h"]:
            found.append(f"{where}: it is not within {WIDTH} columns")
        for cell in ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])):
            if cells.setdefault(cell, panel["id"]) != panel["id"]:
                found.append(f"{where}: it covers panel {cells[cell]}")
                break
        if not panel["targets"] or len({t["refId"] for t in panel["targets"]}) != len(panel["targets"]):
            found.append(f"{where}: its targets have not one refId each")
        for target in panel["targets"]:
            found += mistakes_of_expression(target["expr"], known, where)
            for variable in re.findall(r"\$\{?(\w+)", json.dumps(target)):
                if variable not in variables | {"__rate_interval"}:
                    found.append(f"{where}: there is no variable ${variable}")
    return found


def self_test(board, known):
    if mistakes_of_dashboard(board, known):
        sys.exit("self-test: the dashboard itself has mistakes")

    def after(change):
        changed = copy.deepcopy(board)
        change(changed["panels"])
        return mistakes_of_dashboard(changed, known)

    def expr(text):
        return lambda panels: panels[3]["targets"][0].update(expr=text)
    changes = {"no type": lambda panels: panels[0].pop("type"),
               "a type that is none": lambda panels: panels[0].update(type="graph"),
               "a number as title": lambda panels: panels[0].update(title=3),
               "an id twice": lambda panels: panels[0].update(id=2),
               "a place twice": lambda panels: panels[0]["gridPos"].update(panels[1]["gridPos"]),
               "too wide": lambda panels: panels[0]["gridPos"].update(w=25),
               "no thresholds": lambda panels: panels[0]["fieldConfig"]["defaults"].pop("thresholds"),
               "a unit that is none": lambda panels: panels[0]["fieldConfig"]["defaults"].update(unit="bytes/s"),
               "no targets": lambda panels: panels[0].update(targets=[]),
               "an old metric": expr("sum(vrdma_cpu_microseconds_total)"),
               "a counter without _total": expr("vrdma_work_bytes"),
               "another's label": expr('vrdma_qps{kind="qp"}'),
               "a label of nothing": expr("sum by (podd) (vrdma_qps)"),
               "a variable that is none": expr('vrdma_qps{vdevice="$device"}')}
    missed = [name for name, change in changes.items() if not after(change)]
    if missed or len(known) < 80:
        sys.exit(f"self-test: not found: {missed}; {len(known)} metrics")
    print(f"{len(changes)} mistakes are found")


def main():
    own_test = sys.argv[1:] == ["--self-test"]
    root = tree.ROOT if own_test or len(sys.argv) == 1 else sys.argv[1]

    def read(path):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            return file.read()
    known = families(read("vrdmad/admin/metric_families.cc"))
    board = json.loads(read("packaging/grafana/vrdma.json"))
    if own_test:
        return self_test(board, known)
    found = mistakes_of_dashboard(board, known)
    found += mistakes_of_expression(re.sub(r"{{.*?}}|^ *(#|description:).*$", "", read("packaging/grafana/alerts.yaml"),
                                           flags=re.M), known, "alerts.yaml")
    for mistake in found:
        print(mistake)
    print(f"{len(board['panels'])} panels, {len(known)} metrics: {len(found)} mistakes")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
