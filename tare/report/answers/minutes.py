"""The command that would answer what a study left open, with its number of minutes."""

from __future__ import annotations

from tare.analysis.minutes import ROUND_MINUTES, Answer, answered_by
from tare.model.studies.layout import DEFAULT_STUDY
from tare.model.studies.study import load, study_files
from tare.report.evidence import Evidence
from tare.report.words.labels import env_title, workload_title
from tare.stats.intervals import MOST_UNITS


def sentence(evidence: Evidence) -> str | None:
    """Which command is expected to tell what whole runs and training steps left open; None where none is open."""
    found = answered_by(evidence.study, evidence.campaigns)
    if found is None:
        return None
    env, what = found.comparison.name.split(", ", 1)
    rounds = f"more than {MOST_UNITS:,}" if found.rounds >= MOST_UNITS else f"{found.rounds:,}"
    wanted = (
        f"Most is wanted by {workload_title(found.workload)}, {env_title(env, short=True)}, {what}: its spread is "
        f"{found.comparison.spread:.2%} a round, so that it wants {rounds} rounds"
    )
    if found.ends_at is not None:
        return (
            f"No number of minutes is expected to tell what is open. {wanted}; but after about {found.ends_at:,} "
            f"whole runs have the half-width that the study wants, {evidence.study.rounds.half_width:.1%}, and the "
            "campaign ends. A smaller `rounds: half_width` lets it go on."
        )
    if found.minutes is None:
        return (
            f"No study of up to {ROUND_MINUTES[-1] // 60} hours is expected to tell what is open. {wanted}; with "
            f"all that is wanted it would take about {found.needed_s / 3600:,.0f} hours."
        )
    return (
        f"{command(evidence.study.study, found)} is expected to tell what is open, if spreads stay as they are. "
        f"{wanted}. It is a new try: its verdicts replace these, with a smaller share of alpha."
    )


def command(study: str, found: Answer) -> str:
    """What a person types: `make report MINUTES=60`, with the study's file where it is not the default one."""
    files = (path for path in study_files() if load(path).get("study") == study)
    words = [] if study == DEFAULT_STUDY else [f"STUDY={next(files, f'{study}.yaml')}"]
    return " ".join(["make report", *words, f"MINUTES={found.minutes}"])
