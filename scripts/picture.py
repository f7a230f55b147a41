#!/usr/bin/env python3
"""Draws docs/result.svg from the kept benchmark results: what was kept, what it cost, what was lost.

usage: picture.py bench/results/questions.tsv bench/results/decode.txt > docs/result.svg
"""
import re
import sys

INK, SOFT, FULL, SMALL, RULE = "#1f2933", "#52606d", "#9aa5b1", "#0b7285", "#d9dee3"


def questions(path):
    """(number of questions, right with the full cache, [(keep, right, mean KL)] of chunkkv)"""
    rows, total, full = [], 0, 0
    for line in open(path, encoding="utf-8"):
        m = re.match(r"# .* (\d+) questions: the full cache answers (\d+) right", line)
        if m:
            total, full = int(m[1]), int(m[2])
        m = re.match(r"# chunkkv\s+(\S+)%\s+(\d+)\s+\d+\s+([\d.]+)", line)
        if m:
            rows.append((m[1], int(m[2]), float(m[3])))
    return total, full, rows


def rates(path):
    """[(prompt tokens, kept, compressed rate, full rate)]"""
    out, now = [], None
    for line in open(path, encoding="utf-8"):
        m = re.match(r"prompt (\d+) tokens.*: (\d+) kept", line)
        if m:
            now = [int(m[1]), int(m[2]), 0.0, 0.0]
            out.append(now)
        m = re.match(r"\s+(compressed|full cache), tokens/s.*?\s([\d.]+)\s+\(", line)
        if m and now:
            now[2 if m[1] == "compressed" else 3] = float(m[2])
    return out


def text(x, y, s, size=13, color=INK, anchor="start", weight="normal"):
    return (f'<text x="{x}" y="{y}" font-size="{size}" fill="{color}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{s}</text>')


def bar(x, y, w, h, color):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(w, 1):.1f}" height="{h}" rx="2" fill="{color}"/>'


def main():
    total, full, rows = questions(sys.argv[1])
    speed = rates(sys.argv[2])
    out, y = [], 34
    out.append(text(20, y, "A tenth of the KV cache, measured", 18, weight="bold"))
    y += 20
    out.append(text(20, y, "SmolLM2-135M on two CPU cores, policy chunkkv; raw output in bench/results", 12, SOFT))
    y += 34
    out.append(text(20, y, "Decoding, tokens/s: full cache and 10 % of it", 13, weight="bold"))
    top = max(max(r[2], r[3]) for r in speed)
    for n, kept, small, whole in speed:
        y += 24
        out.append(text(20, y + 12, f"{n} tokens, {kept} kept", 12, SOFT))
        out.append(bar(190, y, 330 * whole / top, 8, FULL))
        out.append(text(196 + 330 * whole / top, y + 8, f"{whole:.0f}", 11, SOFT))
        out.append(bar(190, y + 10, 330 * small / top, 8, SMALL))
        out.append(text(196 + 330 * small / top, y + 19, f"{small:.0f}", 11, INK))
        y += 6
    y += 46
    out.append(text(20, y, f"What was lost: {total} questions about the demo's document", 13, weight="bold"))
    out.append(text(560, y, "mean KL", 12, SOFT, "end"))
    for keep, right, kl in [("100", full, 0.0)] + rows:
        y += 24
        color = FULL if keep == "100" else SMALL
        out.append(text(20, y + 11, f"{keep} % kept", 12, SOFT))
        out.append(bar(190, y, 240, 14, RULE))
        out.append(bar(190, y, 240 * right / total, 14, color))
        out.append(text(438, y + 11, f"{right} right", 12))
        out.append(text(560, y + 11, f"{kl:.2f}", 12, INK, "end"))
    y += 34
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="580" height="{y}" viewBox="0 0 580 {y}" '
          f'font-family="system-ui, sans-serif"><rect width="580" height="{y}" rx="6" fill="#ffffff"/>')
    print("\n".join(out))
    print("</svg>")


main()
