#!/usr/bin/env python3
"""The exporter's pages that usage.py kept, as `promtool tsdb create-blocks-from openmetrics` reads them: openmetrics.py PAGES.

Prints softmig's own metrics, with the labels of a scrape of this node.
"""
import gzip
import json
import re
import sys

NODE = 'instance="gpu01:9836",job="softmig"'
SAMPLE = re.compile(r"(softmig_\w+)(?:\{(.*)\})? (\S+)$")


def main(file):
    with gzip.open(file, "rt") as kept:
        pages = json.load(kept)
    kinds, families = {}, {}
    for at, page in pages:
        for line in page.splitlines():
            if line.startswith("# TYPE "):
                name, kind = line.split()[2:]
                kinds[name] = kind
            elif sample := SAMPLE.match(line):
                name, labels, value = sample.groups()
                labels = ",".join(filter(None, [labels, NODE]))
                families.setdefault(name, []).append(f"{name}{{{labels}}} {value} {at:.3f}")
    for name, samples in families.items():
        kind = kinds.get(name, "gauge")
        # There a counter's family has no suffix.
        print(f"# TYPE {name.removesuffix('_total') if kind == 'counter' else name} {kind}", *samples, sep="\n")
    print("# EOF")


main(sys.argv[1])
