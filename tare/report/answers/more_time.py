"""What more time would tell, in sentences and in numbers, from a study's own campaigns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tare.analysis.choice import METRIC_OF
from tare.analysis.more_time import Prospect, of_one_more, prospects
from tare.literature.measured_here import GUESTS
from tare.model.registry import environment_names
from tare.report.answers.job_length import duration
from tare.report.evidence import Evidence
from tare.report.methods.designs import WHAT, name_of
from tare.report.words.labels import arm_title, env_title, sentence_case, units_text, workload_title
from tare.report.words.layout import Table
from tare.report.words.wording import listed, margin_text, width_text


@dataclass(frozen=True, kw_only=True)
class MoreTime:
    """What the page says of it."""

    sentences: list[str]
    table: Table


def section(evidence: Evidence, workloads: Collection[str] | None = None) -> MoreTime | None:
    """Of all workloads of a study, or of some; None where no environment was compared with the host."""
    names = evidence.workloads if workloads is None else workloads
    found = prospects((one for one in evidence.views if one.workload in names), evidence.verdicts)
    own = [one for one in found if one.campaign.is_headline]
    if not own:
        return None
    lines = [line for kind in METRIC_OF for line in _of_kind([one for one in own if one.campaign.kind == kind])]
    lines += _of_arms([one for one in found if not one.campaign.is_headline])
    return MoreTime(sentences=[*lines, *_left_out(evidence)], table=_table(found))


def _of_kind(found: Sequence[Prospect]) -> list[str]:
    """How far the headlines of whole runs, or of training steps, are from what they were to tell."""
    if not found:
        return []
    parts = [*_undecided(found), *_widest(found), *_time(found)]
    return [f"{sentence_case(WHAT[found[0].campaign.kind])}: {'; '.join(parts)}."]


def _undecided(found: Sequence[Prospect]) -> list[str]:
    """How many comparisons can't be told, and how many of those have too few units for a verdict."""
    count, few = sum(one.undecided for one in found), sum(one.too_few for one in found)
    if not count:
        return []
    said = f"{count} of {sum(one.comparisons for one in found)} comparisons can't be told yet"
    if few:
        which = "all" if few == count else str(few)
        said += f", {which} of them with fewer than the {_units(found[0], found[0].fewest)} that a verdict takes"
    if alone := sum(one.but_for_units for one in found):
        said += f" ({alone} for that alone: the intervals would tell)"
    return [said]


def _widest(found: Sequence[Prospect]) -> list[str]:
    told = [(one.half_width, one) for one in found if one.half_width is not None]
    without = sum(one.without for one in found)
    lines = [f"{without} of them {'has' if without == 1 else 'have'} no interval"] if without else []
    if told:
        half, one = max(told, key=lambda pair: pair[0] / pair[1].margin)
        where = "beyond" if half > one.margin else "inside"
        lines.append(
            f"the widest interval is {width_text(half)} ({_title(one)}, {_units(one, one.units)}), {where} the "
            f"margin of {margin_text(one.margin)}"
        )
    return lines


def _time(found: Sequence[Prospect]) -> list[str]:
    """How many units the campaign needs that needs most, and how long all take with as many as each needs."""
    if unknown := [_title(one) for one in found if one.needed is None]:
        return [f"how many units {listed(unknown)} would take, nobody can say"]
    needed = [(one.needed or 0, one) for one in found]
    if all(count <= one.units for count, one in needed):
        return ["for what the study asks no more units are needed"]
    most, first = max(needed, key=lambda pair: pair[0] / pair[1].units)
    took_s, needed_s = sum(one.took_s for one in found), sum(count * one.unit_s for count, one in needed)
    others = f" of {_title(first)}, and of the others as many as they need," if len(found) > 1 else ""
    return [
        f"about {_units(first, most)} instead of {first.units:,}{others} would tell, if spreads stay as they are: "
        f"{duration(needed_s)} of machine time instead of {duration(took_s)}"
    ]


def _of_arms(found: Sequence[Prospect]) -> list[str]:
    """Arms whose units are too few for any verdict, and what one would take."""
    few = [one for one in found if one.too_few]
    if not few:
        return []
    names = "; ".join(name_of(one.campaign) for one in few)
    most = max(few, key=lambda one: one.fewest)
    each = {one.campaign.path: one for one in few}.values()  # whole runs and their steps are of the same rounds
    took_s, needed_s = sum(one.took_s for one in each), sum(one.fewest * one.unit_s for one in each)
    return [
        f"With too few units for a verdict: {names}. It takes {_units(most, most.fewest)} at least: "
        f"{duration(needed_s)} of machine time instead of {duration(took_s)}."
    ]


def _left_out(evidence: Evidence) -> list[str]:
    """Environments that there are and the study does not name, and what one of them more would take."""
    known = [name for name in environment_names() if "." not in name]
    names = [name for name in known if name not in (*evidence.environments, *GUESTS)]
    if not names:
        return []
    share_s = of_one_more(evidence.campaigns)
    titles = listed([env_title(name, short=True) for name in names])
    return [
        f"Not in this study: {titles}. Each, named in its file, would have taken its campaigns about "
        f"{duration(share_s)} more, and an image beside that."
    ]


def _title(one: Prospect) -> str:
    """A headline's workload, and the level of the headlines beside the first."""
    arm = one.campaign.arm
    return workload_title(one.campaign.workload) + (f", {arm_title(arm.name)}" if arm else "")


def _units(one: Prospect, count: int) -> str:
    """A number of units with two digits: a forecast has no third."""
    return units_text(round(float(f"{count:.2g}")) if count >= 100 else count, one.campaign.kind)


def _table(found: Sequence[Prospect]) -> Table:
    return Table.of(
        found,
        {
            "campaign": lambda one: name_of(one.campaign),
            "units": lambda one: _units(one, one.units),
            "a unit takes": lambda one: duration(one.unit_s),
            "widest interval": lambda one: "none" if one.half_width is None else width_text(one.half_width),
            "margin": lambda one: margin_text(one.margin),
            "wanted": lambda one: None if one.wanted is None else f"±{margin_text(one.wanted)}",
            "can't be told": lambda one: f"{one.undecided} of {one.comparisons}",
            "a verdict takes": lambda one: _units(one, one.fewest),
            "units to tell": lambda one: "nobody can say" if one.needed is None else _units(one, one.needed),
            "they take": lambda one: None if one.needed_s is None else duration(one.needed_s),
        },
        caption="Units and time that a new campaign would need",
        note="As if spreads and the cost of a unit stayed what they are. Units to tell: until the widest interval "
        "is as narrow as the margin, or as was wanted where it is, each comparison has enough for a verdict, and "
        "those that can't be told can be.",
        wide=True,
    )
