#!/usr/bin/env python3
"""Prints the tables of docs/methods.md from the committed raw output of ckv-bench-policies.

usage: methods_tables.py RESULTS.tsv
"""
import sys


def rows(path):
    """policy -> keep -> columns of the table at the file's end"""
    found = {}
    for line in open(path, encoding="utf-8"):
        cells = line.split()
        if len(cells) == 10 and cells[0] == "#" and cells[2].endswith("%"):
            found.setdefault(cells[1], {})[cells[2]] = cells[3:]
    return found


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    table = rows(sys.argv[1])
    keeps = list(next(iter(table.values())))
    print("| policy | cells held, of full | rows of own length | decoding, × full | mean KL | same top token, % | needles found |")
    print("|---|---|---|---|---|---|---|")
    for policy, by_keep in table.items():
        columns = [" / ".join(by_keep[k][i] for k in keeps) for i in range(6)]
        columns[5] = " / ".join(by_keep[k][5].split("/")[0] for k in keeps)
        held, own = columns[0], columns[1]
        columns[1] = "as held" if held == own else own
        print("| %s | %s |" % (policy, " | ".join(columns)))


if __name__ == "__main__":
    main()
