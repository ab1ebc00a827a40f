#!/usr/bin/env python3
"""The exporter's pages that usage.py kept, as `promtool tsdb create-blocks-from openmetrics` reads them: openmetrics.py PAGES.

Prints softmig's own metrics, with the labels of a scrape of this node. jobstats.py takes those of a view.
"""
import gzip
import json
import re
import sys

NODE = 'instance="gpu01:9836",job="softmig"'


def pages(file):
    """The time of each page, and its text."""
    with gzip.open(file, "rt") as kept:
        return json.load(kept)


def samples(pages, prefix="softmig_", scrape=NODE):
    """The lines of the metrics whose names begin so, each sample with the labels of the scrape."""
    sample_of = re.compile(rf"({prefix}\w+)(?:\{{(.*)\}})? (\S+)$")
    kinds, families = {}, {}
    for at, page in pages:
        for line in page.splitlines():
            if line.startswith("# TYPE "):
                name, kind = line.split()[2:]
                kinds[name] = kind
            elif sample := sample_of.match(line):
                name, labels, value = sample.groups()
                labels = ",".join(filter(None, [labels, scrape]))
                families.setdefault(name, []).append(f"{name}{{{labels}}} {value} {at:.3f}")
    for name, found in families.items():
        kind = kinds.get(name, "gauge")
        # There a counter's family has no suffix.
        yield f"# TYPE {name.removesuffix('_total') if kind == 'counter' else name} {kind}"
        yield from found
    yield "# EOF"


if __name__ == "__main__":
    print(*samples(pages(sys.argv[1])), sep="\n")
