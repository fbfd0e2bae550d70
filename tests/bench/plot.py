"""Plots as SVG: lines over logarithmic axes, ours drawn thick, the legend beside them."""

import math
import statistics
from html import escape

WIDTH, HEIGHT = 860, 460
LEFT, TOP, RIGHT, BOTTOM = 80, 40, 620, 400  # of the field
COLOURS = ["#0b5fa5", "#c0392b", "#1e8449", "#8e44ad", "#d68910", "#566573", "#17a2b8", "#7b3f00"]


class Axis:
    """Logarithmic, from a power of `base` to another, onto `begin` to `end` of the picture."""

    def __init__(self, values, base, begin, end):
        self.base, self.begin, self.end = base, begin, end
        self.low = math.floor(math.log(min(values), base) + 1e-9)
        self.high = max(math.ceil(math.log(max(values), base) - 1e-9), self.low + 1)

    def at(self, value):
        part = (math.log(value, self.base) - self.low) / (self.high - self.low)
        return round(self.begin + part * (self.end - self.begin), 1)

    def ticks(self):
        step = max(1, math.ceil((self.high - self.low) / 11))
        return [self.base ** i for i in range(self.low, self.high + 1, step)]


def label(value):
    for limit, unit in ((2**20, "Mi"), (2**10, "Ki")):
        if value >= limit and value % limit == 0:
            return f"{value // limit:.0f} {unit}"
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def line(x1, y1, x2, y2, colour):
    return f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}"/>'


def text(x, y, words, more=""):
    return f'<text x="{x}" y="{y}" {more}>{escape(words)}</text>'


def svg(title, x_title, y_title, curves, x_base=2):
    """curves: name -> [(x, y)], all above 0; names that begin with "vrdma" are ours."""
    points = [point for curve in curves.values() for point in curve]
    x = Axis([p[0] for p in points], x_base, LEFT, RIGHT)
    y = Axis([p[1] for p in points], 10, BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        text((LEFT + RIGHT) / 2, 22, title, 'text-anchor="middle" font-size="15"'),
        text((LEFT + RIGHT) / 2, BOTTOM + 42, x_title, 'text-anchor="middle"'),
        text(20, (TOP + BOTTOM) / 2, y_title,
             f'text-anchor="middle" transform="rotate(-90 20 {(TOP + BOTTOM) / 2})"'),
    ]
    for tick in x.ticks():
        parts.append(line(x.at(tick), TOP, x.at(tick), BOTTOM, "#ddd"))
        parts.append(text(x.at(tick), BOTTOM + 18, label(tick), 'text-anchor="middle"'))
    for tick in y.ticks():
        parts.append(line(LEFT, y.at(tick), RIGHT, y.at(tick), "#ddd"))
        parts.append(text(LEFT - 8, y.at(tick) + 4, label(tick), 'text-anchor="end"'))
    for i, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[i % len(COLOURS)]
        ours = name.startswith("vrdma")
        way = " ".join(f"{x.at(a)},{y.at(b)}" for a, b in curve)
        style = 'stroke-width="3"' if ours else 'stroke-width="1.5" stroke-dasharray="5 3"'
        parts.append(f'<polyline points="{way}" fill="none" stroke="{colour}" {style}/>')
        parts += [f'<circle cx="{x.at(a)}" cy="{y.at(b)}" r="{3 if ours else 2}" fill="{colour}"/>'
                  for a, b in curve]
        parts.append(f'<line x1="{RIGHT + 15}" y1="{TOP + 20 * i + 8}" x2="{RIGHT + 45}" '
                     f'y2="{TOP + 20 * i + 8}" stroke="{colour}" {style}/>')
        parts.append(text(RIGHT + 52, TOP + 20 * i + 12, name))
    return "\n".join(parts + ["</svg>"]) + "\n"


def drawings(entries):
    """Name of file and SVG, for what has been measured."""
    for kind, title, unit in (("latency", "Half round trip", "us"),
                              ("bandwidth", "Bandwidth", "MiB/s")):
        points = sorted((entry for entry in entries if entry.get("plot") == kind),
                        key=lambda entry: entry["size"])
        curves = {}
        for point in points:
            for name, values in point["values"].items():
                curves.setdefault(name, []).append((point["size"], statistics.median(values)))
        if curves:
            yield f"{kind}.svg", svg(title, "bytes", unit, curves)
    for entry in entries:
        if "rows" not in entry:
            continue
        rows = entry["rows"]
        curves = {"vrdma: creation, median us": [(r["count"], r["median_us"]) for r in rows]}
        for key, name in (("daemon_kib", "vrdmad, KiB each"), ("process_kib", "process, KiB each")):
            curve = [(r["count"], r[key] / r["count"]) for r in rows if r[key] > 0]
            if curve:
                curves[name] = curve
        yield f"{entry['what']}.svg", svg(f"Growing number of {entry['what']}", "count",
                                          "us, KiB", curves, x_base=10)
