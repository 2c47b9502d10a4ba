"""How it was measured and what limits it, in sentences computed from the plans."""

from __future__ import annotations

from tare.figures import joint
from tare.report.evidence import Evidence
from tare.report.wording import margin_text


def method_sentences(evidence: Evidence) -> list[str]:
    """The design of the campaigns, as it was declared before any data."""
    plans = [c.plan for c in map(evidence.joint, evidence.workloads) if c is not None]
    if not plans:
        return ["No joint campaign has been sealed."]
    plan = plans[0]
    names = len(plan["environments"])
    others = max(names - 2, 1)
    return [
        f"Rounds: each round launched {names} whole runs to completion, one after the other in random order, the "
        f"host among them twice. {_discarded(plan['discarded'])} {plan['units']} that count. Seed {plan['seed']} "
        "gives every order and every size of the "
        "environment block; both are in the records.",
        "The unit is the round. Per round: the logarithm of each environment's ratio to the mean of the two hosts. "
        "The control is the second host's ratio to the first: what the instrument sees where nothing is.",
        f"Intervals: Student's t on these logarithms, at {100 * plan['confidence']:g}% for all {others} "
        "comparisons of one workload and metric together (Bonferroni). The interval that is printed is the one "
        "that decides.",
        f"Margins, declared before the data: {margin_text(plan['margins']['run'])} for whole runs and their parts, "
        f"{margin_text(plan['margins']['step'])} for training steps. Inside and across zero: equivalent. Inside, "
        "not across zero: different within the margin. Across zero and beyond the margin: inconclusive. Else: "
        "different.",
        f"Equal for all: {plan['conditions']['threads']} thread(s), {plan['conditions']['cpus']} logical CPU(s), "
        f"open files, /dev/shm, an allow-listed environment, working directory, data path; {_network(evidence)}; "
        f"page cache {plan['conditions']['page_cache']}; allocator {plan['conditions']['allocator']}; "
        "the same tree of interpreter and packages, byte for byte.",
        "Profiled launches and timed launches are never the same launch.",
    ]


def _network(evidence: Evidence) -> str:
    """Whether every launch had an empty network, from what each saw."""
    campaigns = [c for c in map(evidence.joint, evidence.workloads) if c is not None]
    rows = [row for c in campaigns for unit in c.units for row in unit["launches"].values() if row.get("inside")]
    connected = [row for row in rows if row["inside"]["facts"]["interfaces"] not in ([], ["lo"])]
    if connected:
        return f"{len(connected)} of {len(rows)} launches saw a network, which could not be taken away here"
    return "no network"


def _discarded(count: int) -> str:
    if not count:
        return "None was discarded;"
    return f"{count} discarded round{'s' if count > 1 else ''} came first, then"


def limit_sentences(evidence: Evidence) -> list[str]:
    """What a reader must not conclude, and why."""
    lines = []
    virtual = (evidence.machine or {}).get("virtualisation")
    if virtual and virtual != "none":
        lines.append(
            f"The host of this report is itself virtual ({virtual}): what bare metal would show, it can't say. "
            "Other machines may share its processor, and their work is in these times."
        )
    elif virtual is None:
        lines.append("Whether the host is itself a virtual machine could not be read.")
    rows = joint(evidence.verdicts)
    open_questions = rows[(rows["verdict"] == "inconclusive") & rows["ci_low"].notna()]
    unanswered = rows[rows["ci_low"].isna()]
    if len(open_questions):
        n_units = int(rows["n_units"].max())
        lines.append(
            f"{len(open_questions)} of {len(rows)} comparisons are inconclusive with {n_units} rounds: the "
            "machine's own spread is wider than the margin. More rounds narrow the intervals."
        )
    if len(unanswered):
        lines.append(f"{len(unanswered)} of {len(rows)} comparisons have no interval: too few launches succeeded.")
    lines += [
        "FLOPs and bytes are modelled from operators. The bytes count every operand as if no cache kept any of it: "
        "an upper bound, never DRAM traffic.",
        "Each environment was profiled once: its operator times and utilisation show what runs, not small "
        "differences.",
        "One machine, one stack, one day. Another may differ.",
    ]
    return lines
