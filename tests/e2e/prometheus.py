"""A strict reader of Prometheus' text format 0.0.4: whatever the format's page does not allow is an error, and so is what its conventions forbid."""
import re

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|\Z)')
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)\Z")
NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|Inf)\Z|NaN\Z")
TYPES = ("counter", "gauge", "histogram")


def need(condition, what):
    if not condition:
        raise AssertionError(what)


def labels_of(text):
    found, at = [], 0
    while at < len(text):
        match = LABEL.match(text, at)
        need(match, f"labels {text!r}")
        need(match.group(1) not in dict(found), f"a label twice: {text!r}")
        found.append((match.group(1), re.sub(r"\\(.)", lambda m: "\n" if m.group(1) == "n" else m.group(1), match.group(2))))
        at = match.end()
        need(match.group(3) == "" or at < len(text), f"a comma at the end: {text!r}")
    return tuple(sorted(found))


def check_histogram(name, samples):
    series = {}
    for (sample, labels), value in samples.items():
        rest = tuple(label for label in labels if label[0] != "le")
        series.setdefault(rest, {})[(sample, dict(labels).get("le"))] = value
    for labels, values in series.items():
        buckets = [(float(bound), value) for (sample, bound), value in values.items() if sample == name + "_bucket"]
        need(buckets == sorted(buckets) and [value for _, value in buckets] == sorted(value for _, value in buckets), f"{name}{labels}: buckets")
        need(buckets[-1][0] == float("inf") and buckets[-1][1] == values[(name + "_count", None)], f"{name}{labels}: the last bucket")
        need((name + "_sum", None) in values and len(values) == len(buckets) + 2, f"{name}{labels}: samples")


class Metrics:
    """All samples, by (name, labels)."""

    def __init__(self, text):
        need(text.endswith("\n"), "no line feed at the end")
        self.samples, self.types = {}, {}
        family, helped, own = None, None, {}
        for line in text[:-1].split("\n"):
            if line.startswith("# HELP "):
                self.finish(family, own)
                helped, family, own = line.split(" ", 3)[2], None, {}
                need(NAME.match(helped) and helped not in self.types and len(line.split(" ", 3)) == 4, line)
            elif line.startswith("# TYPE "):
                _, _, family, kind = line.split(" ")
                need(family == helped and kind in TYPES and not own, line)
                need((kind == "counter") == family.endswith("_total"), f"{family} is a {kind}")
                self.types[family] = kind
            else:
                match = SAMPLE.match(line)
                need(match and NUMBER.match(match.group(3)), f"sample {line!r}")
                key = (match.group(1), labels_of(match.group(2) or ""))
                endings = ("_bucket", "_sum", "_count") if self.types[family] == "histogram" else ("",)
                need(match.group(1) in [family + ending for ending in endings], f"{line!r} is not of {family}")
                need(key not in self.samples, f"twice: {line!r}")
                own[key] = self.samples[key] = float(match.group(3))
                need(self.types[family] != "counter" or own[key] >= 0, line)
        self.finish(family, own)

    def finish(self, family, own):
        if family and self.types[family] == "histogram":
            check_histogram(family, own)

    def value(self, name, **labels):
        return self.samples.get((name, tuple(sorted(labels.items()))), 0)

    def moved(self, before):
        """{(name, labels): by how much} of every sample that is not what it was."""
        return {key: value - before.samples.get(key, 0) for key, value in self.samples.items() if value != before.samples.get(key, 0)}
