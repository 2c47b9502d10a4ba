"""Why environments differ: an argument in six steps, each sentence computed from tables.

Bytes, kernels, speed of operators, place of the extra time, what it is, what stays unexplained. Host against host
comes first wherever two hosts can be compared.
"""

from __future__ import annotations

from functools import cached_property

from tare.analysis import causes, suspects
from tare.analysis.choice import arm_verdicts, is_level, of_causes, of_rounds, share
from tare.analysis.verdicts import CAUSE_METRICS
from tare.model.records.campaigns import VERDICT_UNITS
from tare.model.studies.study import HOST
from tare.model.tables import DIFFERENT
from tare.report.evidence import Evidence
from tare.report.machine.conditions import first_facts
from tare.report.reasons import why_tables
from tare.report.words import why_words
from tare.report.words.labels import arm_title, env_title, sentence_case, workload_title
from tare.report.words.layout import Argument, Step
from tare.report.words.wording import verdict_sentence


def has_causes(evidence: Evidence) -> bool:
    """Whether any campaign looked for causes."""
    return any(len(of_causes(evidence.metrics, workload)) for workload in evidence.workloads)


def arguments(evidence: Evidence) -> list[Argument]:
    """One per workload of the study."""
    return [_Case(evidence, workload).argument() for workload in evidence.workloads]


class _Case:
    """What is known of one workload."""

    def __init__(self, evidence: Evidence, workload: str) -> None:
        self.evidence = evidence
        self.workload = workload
        self.metrics = of_causes(evidence.metrics, workload)
        self.kernels = of_causes(evidence.kernels, workload)
        self.rounds = of_rounds(evidence.metrics, workload)
        self.verdicts = of_rounds(evidence.verdicts, workload)
        self.files = evidence.fingerprints[evidence.fingerprints["workload"] == workload]
        seen = {*causes.environments_of(self.metrics), *causes.environments_of(self.rounds), *self.files["launch"]}
        self.environments = [env for env in evidence.environments if env != HOST and env in seen]

    @cached_property
    def times(self) -> list[causes.OperatorTime]:
        """Operators against the host's."""
        return causes.operator_times(self.kernels, self._alpha("causes"), self._fewest("causes"))

    @cached_property
    def costs(self) -> list[causes.PhaseCost]:
        """Extra time by phase."""
        return causes.phase_costs(self.rounds, self._alpha("rounds"), self._fewest("rounds"))

    @cached_property
    def accounts(self) -> dict[str, causes.FileAccount]:
        """What files account for, by environment."""
        found = causes.file_accounts(self.rounds, self.metrics, min(self._alpha("rounds"), self._alpha("causes")))
        return {account.env: account for account in found}

    @cached_property
    def differences(self) -> dict[str, list[suspects.FileDifference]]:
        """Mapped files that are not the host's, by environment; those without a record are left out."""
        found = {env: suspects.file_differences(self.files, env) for env in self.environments}
        return {env: files for env, files in found.items() if files is not None}

    def _alpha(self, kind: str) -> float:
        """Of a family of a campaign, with the share of its try."""
        chosen = {"rounds": self.verdicts, "causes": of_causes(self.evidence.verdicts, self.workload)}[kind]
        return share(chosen) * (1 - self.evidence.study.confidence)

    def _fewest(self, kind: str) -> int:
        """Units of a campaign before anything is told apart."""
        campaign = self.evidence.headline(self.workload, kind)
        return campaign.plan.sampling.verdict_units if campaign else VERDICT_UNITS

    def own_costs(self, env: str) -> list[causes.PhaseCost]:
        """Extra time by phase in one environment."""
        return [cost for cost in self.costs if cost.env == env]

    def argument(self) -> Argument:
        """All six steps, then the tables."""
        title = workload_title(self.workload)
        tables = [
            why_tables.phases_table(self.costs, title),
            why_tables.accounts_table(list(self.accounts.values()), title),
            why_tables.files_table(self.metrics, title),
            why_tables.operators_table(self.times, title),
            why_tables.kernels_table(self.kernels, title),
        ]
        answers = {
            "Are the bytes the same?": self.bytes(),
            "Do they run the same operators and kernels?": self.sets(),
            "At the same speed?": why_words.operator_sentences(self.times),
            "Where does extra time sit?": self.phases(),
            "What is it?": self.reasons(),
            "What stays unexplained?": self.unexplained(),
        }
        steps = [Step(question=question, sentences=lines) for question, lines in answers.items()]
        return Argument(name=self.workload, title=title, steps=steps, tables=tables)

    def bytes(self) -> list[str]:
        """Mapped files against the host's."""
        if not self.differences:
            return ["No profiled launch recorded its mapped files beside the host's."]
        trees = {env: suspects.tree_files(self.files, env) for env in self.differences}
        return why_words.grouped(
            {env: why_words.bytes_body(trees[env], own) for env, own in self.differences.items()}
        )

    def sets(self) -> list[str]:
        """Operators, then kernels; with the reason where no launch could tell."""
        lines = why_words.set_sentences(causes.compare_sets(self.kernels, operators=True), "operators")
        kernels = causes.compare_sets(self.kernels, operators=False)
        missing = self.metrics[(self.metrics["metric"] == "kernels_per_step") & self.metrics["reason"].notna()]
        if not kernels and len(missing):
            return [*lines, f"Kernels of oneDNN and MKL are unavailable: {missing.iloc[0]['reason']}."]
        return [*lines, *why_words.set_sentences(kernels, "kernels of oneDNN and MKL")]

    def phases(self) -> list[str]:
        """Extra time by phase; the control last."""
        if not self.costs:
            return ["No environment beside the host finished whole runs, so there is no extra time to split."]
        names = dict.fromkeys(cost.env for cost in self.costs)
        return why_words.grouped({env: why_words.phase_body(self.own_costs(env)) for env in names})

    def reasons(self) -> list[str]:
        """The runtime itself, files, and what arms have shown."""
        lines = [*self.places()]
        for env in self.environments:
            body = why_words.runtime_body(self.own_costs(env)) if self.own_costs(env) else None
            lines += [f"{env_title(env)}: {body}."] if body else []
        lines += why_words.grouped({env: why_words.account_body(own) for env, own in self.accounts.items()})
        lines += self.file_verdicts() + self.levels()
        return lines or ["No campaign looked for it."]

    def places(self) -> list[str]:
        """The file systems that hold the stack, as launches saw them from inside."""
        facts = first_facts(self.evidence)
        found = {env: facts[env].tree_mount.type for env in (HOST, *self.environments)
                 if env in facts}  # fmt: skip
        places = {env: kind for env, kind in found.items() if kind}
        return [why_words.places_sentence(places)] if places else []

    def file_verdicts(self) -> list[str]:
        """What of the files' costs is decided; how many comparisons are open."""
        rows = of_causes(self.evidence.verdicts, self.workload)
        rows = rows[rows["metric"].isin(CAUSE_METRICS)].to_dict("records")
        decided: dict[str, list] = {}
        for row in rows:
            if row["verdict"] in DIFFERENT:
                decided.setdefault(row["launch"], []).append(row)
        lines = why_words.grouped({env: why_words.verdicts_body(own) for env, own in decided.items()})
        unsure = sum(row["verdict"] == "inconclusive" for row in rows)
        if unsure:
            lines.append(f"Of {len(rows)} comparisons of what files cost, {unsure} can't be told yet.")
        return lines

    def levels(self) -> list[str]:
        """What the arms' own settings cost, by their verdicts."""
        lines = []
        for campaign in self.evidence.arms(self.workload):
            rows = arm_verdicts(self.evidence.verdicts, self.workload, campaign.name).to_dict("records")
            for row in (row for row in rows if is_level(row)):
                said = verdict_sentence(row, other="in the headline", whose="the headline's")
                where = "the host" if row["launch"] == HOST else env_title(row["launch"])
                title = sentence_case(arm_title(campaign.arm.name))
                lines.append(f"{title}, varied alone on {where}: {said}.")
        return lines

    def unexplained(self) -> list[str]:
        """Differences with and without a suspect among the files; then what is open."""
        files = of_causes(self.evidence.verdicts, self.workload)
        longer = (files["metric"] == "files_first_s") & files["verdict"].isin(DIFFERENT) & (files["ratio"] > 1)
        slow = set(files.loc[longer, "launch"])
        bodies = {}
        for env in self.environments:
            operators = [time.operator for time in causes.differing_operators(self.times, env)]
            phases = causes.differing_phases(self.verdicts, env)
            inside = [phase for phase in phases if phase not in ("runtime_start_s", "exit_s")]
            found, cleared = suspects.suspicions(operators, inside, self.differences.get(env, []))
            bodies[env] = why_words.unexplained_body(found, cleared, self.accounts.get(env), env in slow)
        unsure = self.verdicts[
            (self.verdicts["verdict"] == "inconclusive") & self.verdicts["metric"].isin(causes.PHASE_METRICS)
        ]
        lines = why_words.grouped(bodies)
        if len(unsure):
            lines.append(f"{len(unsure)} comparisons of phases can't be told yet, so they ask for no cause yet.")
        return lines or ["No environment but the host left numbers."]
