"""What graph compilers made of TensorFlow's graphs, as they say it themselves while they do.

XLA: TensorFlow logs it (`TF_CPP_VMODULE`, tare/worker/settings/compile.py). Source: `VLogClusteringSummary` in its
mark_for_compilation_pass.cc and `LogNotCompilable` in compilability_check_util.cc, nearly alike from 1.14 on.
Operators that stay outside are not all unsupported: what is fed, what is returned, and clusters too small to pay
are among them.

nGraph: its bridge prints it (`NGRAPH_TF_LOG_PLACEMENT`). Source: ngraph-bridge 0.18, `NGTF_SUMMARY`.
"""

from __future__ import annotations

import re

_CLUSTERS = re.compile(r"Built (\d{1,18}) clusters, size (\d{1,18}) / (\d{1,18}) \(")
_UNSUPPORTED = re.compile(
    r"(?:Found uncompilable node|Not clustering) (\S+) \(op \w+\): (?:unsupported op|No registered)"
)
_BEGINS = "sorted_nodes.size() = "  # before the nodes of a graph are looked at
# What is said of one graph, in this order, each in its own line.
_PLACED = (
    re.compile(r"Op_not_supported:(.*)"),
    re.compile(r"Number of nodes in the graph: (\d{1,18})"),
    re.compile(r"Number of nodes assigned a cluster: (\d{1,18})"),
    re.compile(r"Number of ngraph clusters :(\d{1,18})"),
)
_COUNT = re.compile(r" -> (\d{1,18})")


def xla_clusters(text: str) -> dict[str, int] | None:
    """Clusters of the largest graph in a program's standard error, and operators in and outside; or None. Returns
    `graphs`: clusters, `operators` in them, `left` outside, `unsupported` of these (without a kernel).
    """
    found = []
    seen: set[str] = set()
    for line in text.splitlines():
        if _BEGINS in line:
            seen.clear()
        elif match := _UNSUPPORTED.search(line):
            seen.add(match[1])
        elif summary := _CLUSTERS.search(line):
            clusters, inside, size = map(int, summary.groups())
            found.append((size, clusters, inside, len(seen)))
    return _largest(found)


def ngraph_clusters(text: str) -> dict[str, int] | None:
    """The same of nGraph, from what the program wrote to standard output."""
    found = []
    said: list[str] = []
    for line in text.splitlines():
        if match := _PLACED[len(said)].search(line):
            said.append(match[1])
        if len(said) == len(_PLACED):
            unsupported, size, inside, clusters = said
            counts = sum(map(int, _COUNT.findall(unsupported)))
            found.append((int(size), int(clusters), int(inside), counts))
            said.clear()
    return _largest(found)


def _largest(found: list[tuple[int, int, int, int]]) -> dict[str, int] | None:
    if not found:
        return None
    size, clusters, inside, unsupported = max(found)
    return {"graphs": clusters, "operators": inside, "left": size - inside, "unsupported": unsupported}
