"""What XLA made of TensorFlow's graphs, as TensorFlow logs it (`TF_CPP_VMODULE=mark_for_compilation_pass=2`).

Source: `VLogClusteringSummary` in TensorFlow's mark_for_compilation_pass.cc, alike from 1.14 on. Operators that
stay outside are not all unsupported: variables, what is fed, and clusters too small to pay are among them.
"""

from __future__ import annotations

import re

_SUMMARY = re.compile(r"Built (\d+) clusters, size (\d+) / (\d+) \(")


def xla_clusters(text: str) -> dict[str, int] | None:
    """Clusters of the largest graph that was looked at, operators in them and outside; None where none was.

    Args:
        text: what the program wrote to standard error.

    Returns:
        `graphs`: clusters, each compiled by itself; `operators` in them; `left` outside of them.
    """
    found = [tuple(map(int, match.groups())) for match in _SUMMARY.finditer(text)]
    if not found:
        return None
    clusters, inside, size = max(found, key=lambda one: one[2])
    return {"graphs": clusters, "operators": inside, "left": size - inside}
