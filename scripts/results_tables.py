#!/usr/bin/env python3
"""Prints the tables of docs/results.md from the tables that scripts/eval.sh kept.

usage: results_tables.py [FOLDER ...]           folders below bench/results/eval; none: all
       results_tables.py --across FOLDER        one table over its tasks: KL by task, and what it is more than chunkkv's, paired by example
"""
import json
import os
import random
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench", "results", "eval")
ROW = re.compile(r"^(\S+)\s+(\S+)\s+(\w+)\s+([0-9.]+)\s+(-|[0-9.]+(?: \[[^]]*\])?)\s+(-|[0-9.]+)\s+(-|\d+(?: \[[^]]*\])?)\s+(.*)$")


def tables(path):
    """Yields (heading, rows); a row: policy, keep, type, memory, KL, p99, same, the rest's figures."""
    heading, rows = None, []
    for line in open(path, encoding="utf-8"):
        line = line.rstrip("\n")
        found = re.match(r"^(\S+) \((\d+) examples, (\d+) tokens on average\)$", line)
        if found:
            if rows:
                yield heading, rows
            heading, rows = found.groups(), []
        row = ROW.match(line)
        if row and heading and row.group(1) != "policy":
            rest = re.findall(r"-(?=\s|$)|[0-9.]+(?: \[[^]]*\])?", row.group(8))
            rows.append(row.groups()[:7] + (rest,))
    if rows:
        yield heading, rows


def short(figure):
    """0.623 [0.227, 0.996] with its interval in small print."""
    return figure.replace("[", "<sub>").replace("]", "</sub>").replace(", ", "–")


def print_by_keep(rows, judged):
    keeps = list(dict.fromkeys(r[1] for r in rows if r[0] != "full"))
    many_types = len({r[2] for r in rows}) > 1
    names = list(dict.fromkeys((r[0], r[2]) for r in rows if r[0] != "full"))
    found = {(r[0], r[2], r[1]): r for r in rows}
    print("| policy |" + (" type |" if many_types else "") + "".join(f" {k}: KL | same top | score |" if judged else f" {k}: KL | same top |" for k in keeps))
    print("|---|" + ("---|" if many_types else "") + "---|" * ((3 if judged else 2) * len(keeps)))
    for policy, kind in names:
        cells = []
        for keep in keeps:
            r = found.get((policy, kind, keep))
            cells += [short(r[4]), r[6].split(" ")[0] + " %"] + ([r[7][-1].split(" ")[0]] if judged else []) if r else ["", ""] + ([""] if judged else [])
        print(f"| {policy} |" + (f" {kind} |" if many_types else "") + "".join(f" {c} |" for c in cells))


def read_kl(path):
    """{task: {policy: {example: mean KL}}} of a record file, of one budget and type."""
    found = {}
    for line in open(path, encoding="utf-8"):
        r = json.loads(line)
        if r.get("kl"):
            found.setdefault(r["task"], {}).setdefault(r["policy"], {})[r["example"]] = sum(r["kl"]) / len(r["kl"])
    return found


def interval(values):
    """Mean, and the middle 95 % of 10,000 means of as many drawn with replacement."""
    draw = random.Random(0)
    means = sorted(sum(draw.choices(values, k=len(values))) / len(values) for _ in range(10000))
    return sum(values) / len(values), means[250], means[9749]


def print_across(folder, base="chunkkv"):
    found = read_kl(os.path.join(ROOT, folder, "records.jsonl"))
    policies = list(dict.fromkeys(p for task in found.values() for p in task))
    print("| task |" + "".join(f" {p} |" for p in policies) + "\n|---|" + "---|" * len(policies))
    for task, kl in found.items():
        print(f"| {task} |" + "".join(f" {sum(kl[p].values()) / len(kl[p]):.2f} |" if p in kl else " |" for p in policies))
    cells = []
    for p in policies:
        more = [kl[p][e] - kl[base][e] for kl in found.values() for e in kl.get(p, {}) if e in kl[base]]
        mean, low, high = interval(more)
        cells.append(" |" if p == base else f" {mean:+.2f} <sub>{low:+.2f} to {high:+.2f}, {len(more)}</sub> |")
    print(f"| more than {base}, interval, examples |" + "".join(cells))


def main():
    if sys.argv[1:2] == ["--across"]:
        print_across(sys.argv[2])
        return
    folders = sys.argv[1:] or sorted(f for f in os.listdir(ROOT) if os.path.exists(os.path.join(ROOT, f, "table.txt")))
    for folder in folders:
        for (task, n, length), rows in tables(os.path.join(ROOT, folder, "table.txt")):
            full = [r for r in rows if r[0] == "full"]
            judged = any(r[7] and r[7][-1] != "-" for r in full)
            print(f"\n### {folder}: {task}, {n} examples, {length} tokens on average\n")
            for r in full:
                print(f"whole {r[2]} cache: memory {r[3]}, KL {r[4]}, last column {r[7][-1] if r[7] else '-'}\n")
            if len(rows) > len(full):
                print_by_keep(rows, judged)


if __name__ == "__main__":
    main()
