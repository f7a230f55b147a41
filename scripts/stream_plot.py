#!/usr/bin/env python3
"""Draws bench/results/stream_flat.tsv as docs/stream_flat.svg: speed and cache of a bounded and of a growing cache, by tokens read.

usage: stream_plot.py FILE.tsv OUT.svg
"""
import sys

WIDTH, HEIGHT, LEFT, TOP, GAP = 420, 260, 62, 46, 92
SERIES = (("bounded", "#0b7a75"), ("full", "#b5481c"))


def read(path):
    head, rows = None, []
    for line in open(path, encoding="utf-8"):
        fields = line.rstrip("\n").split("\t")
        if line.startswith("#") or len(fields) < 9:
            continue
        if head is None:
            head = fields
        else:
            rows.append(dict(zip(head, map(float, fields))))
    return rows


def step(top):
    """A round distance between lines, about five of them."""
    unit = 10 ** (len(str(int(top))) - 1)
    return next(unit * k for k in (0.2, 0.5, 1, 2, 5) if top / (unit * k) <= 6)


def panel(out, x0, title, rows, columns, scale):
    top = max(row[c] * scale for row in rows for c in columns) * 1.08
    last = rows[-1]["tokens"]
    to_x = lambda t: x0 + t / last * WIDTH
    to_y = lambda v: TOP + HEIGHT - v * scale / top * HEIGHT
    out.append(f'<text class="title" x="{x0}" y="{TOP - 18}">{title}</text>')
    value = 0.0
    while value <= top:
        y = TOP + HEIGHT - value / top * HEIGHT
        out.append(f'<line class="grid" x1="{x0}" y1="{y:.1f}" x2="{x0 + WIDTH}" y2="{y:.1f}"/>')
        out.append(f'<text class="tick" x="{x0 - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
        value += step(top)
    for tokens in range(0, int(last) + 1, 2000):
        out.append(f'<text class="tick" x="{to_x(tokens):.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{tokens:,}</text>')
    for column, (name, colour) in zip(columns, SERIES):
        points = " ".join(f"{to_x(row['tokens']):.1f},{to_y(row[column]):.1f}" for row in rows)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.2"/>')
        end = rows[-1]
        out.append(f'<text class="name" x="{x0 + WIDTH - 4}" y="{to_y(end[column]) - 8:.1f}" text-anchor="end" fill="{colour}">{name}</text>')


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    rows = read(sys.argv[1])
    if len(rows) < 2:
        sys.exit(f"{sys.argv[1]} holds no series")
    total = LEFT + WIDTH + GAP + WIDTH + 24
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {TOP + HEIGHT + 46}" font-family="sans-serif" role="img" '
        'aria-label="Tokens a second and bytes of the cache, by tokens read">',
        "<style>text{fill:#222}.tick{font-size:12px;fill:#666}.title{font-size:15px}.name{font-size:13px;font-weight:bold}.grid{stroke:#ddd}"
        "@media (prefers-color-scheme:dark){text{fill:#ddd}.tick{fill:#999}.grid{stroke:#444}}</style>",
    ]
    panel(out, LEFT, "tokens a second, one at a time", rows, ("bounded_tok_s", "full_tok_s"), 1.0)
    panel(out, LEFT + WIDTH + GAP, "rows of the cache, MB", rows, ("bounded_bytes", "full_bytes"), 1e-6)
    out.append(f'<text class="tick" x="{total / 2:.0f}" y="{TOP + HEIGHT + 40}" text-anchor="middle">tokens read</text>')
    out.append("</svg>")
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")


main()
