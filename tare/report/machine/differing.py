"""What differs between environments of all that launches tell of themselves, so that a condition of one shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from tare.core.files import canonical_json
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.model.studies.layout import is_headline
from tare.report.evidence import Campaign, Evidence
from tare.report.words.layout import Table, by_environment, value_text

# Of each launch its own, by chance or by name, whatever the environment.
OF_A_LAUNCH = ("hostname", "cwd", "boot_id", "environment_bytes", "cgroups", "namespaces", "cpu_stat")
LONGEST = 120
Values = dict[str, dict[str, str]]  # text by value, as JSON spells it


def differing_table(evidence: Evidence) -> Table | None:
    """The facts in which an environment's launches differ from the host's, and no other; None where nothing ran."""
    seen = _seen(evidence.campaigns)
    names = [env for env in evidence.environments if any(env in each for each in seen.values())]
    if HOST not in names or len(names) < 2:
        return None
    differ = [fact for fact, each in seen.items() if any(_differs(each, env) for env in names)]
    equal = [fact for fact in seen if fact not in differ]
    return Table.of(
        differ,
        {
            "": str,
            **by_environment(names, lambda fact, env: _told(seen[fact].get(env, {}))),
        },
        caption="What launches tell that differs between environments",
        note=f"As the headlines' launches saw themselves. Equal in all: {', '.join(equal) or 'nothing'}.",
        wide=True,
    )


def _seen(campaigns: Iterable[Campaign]) -> dict[str, Values]:
    """By fact and environment every value that successful launches of the headlines told."""
    found: dict[str, Values] = {}
    for campaign in campaigns:
        if not is_headline(campaign.name, "rounds"):
            continue
        for unit in campaign.units:
            for env, launch in unit.launches.items():
                if launch.ok and env != CONTROL:
                    for fact, value in _flat(launch.seen_inside().facts.to_json()):
                        text = value_text(fact, value)
                        found.setdefault(fact, defaultdict(dict))[env][canonical_json(value)] = text
    return found


def _flat(facts: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    for name, value in facts.items():
        if before or name not in OF_A_LAUNCH:
            path = f"{before}{name.replace('_', ' ')}"
            if isinstance(value, Mapping):
                yield from _flat(value, f"{path}: ")
            else:
                yield path, value


def _differs(each: Values, env: str) -> bool:
    """Whether an environment's values are not the host's; where those vary by launch, whether it shares none."""
    own, host = set(each.get(env, ())), set(each.get(HOST, ()))
    return own != host and (len(host) < 2 or not own & host)


def _told(values: Mapping[str, str]) -> str:
    text = " or ".join(sorted(values.values())) or "not told"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
