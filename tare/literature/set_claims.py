"""What launches have in common: the files of the stack that they map, the kernels that they run."""

from __future__ import annotations

from collections.abc import Sequence

from tare.analysis.why.causes import SetComparison, compare_sets
from tare.literature.answers import FAILS, HOLDS, NOTHING, OTHER, Answer, opened, sentence
from tare.literature.finding import listed
from tare.literature.measured_here import Here
from tare.literature.published_file import Claim
from tare.model.registry import HOST
from tare.model.studies.layout import is_headline

STACK = "{tree}/"
BY_CONSTRUCTION = "true by construction: the study gives every environment one tree, byte for byte"


def stack_files(here: Here, workload: str) -> dict[str, dict[str, str]]:
    """By environment: hash of each library of the stack that a profiled launch mapped, by its path inside."""
    own = here.fingerprints
    own = own[(own["workload"] == workload) & (own["campaign"] == "profile") & own["path"].str.startswith(STACK)]
    return {str(env): dict(zip(rows["path"], rows["sha256"], strict=True)) for env, rows in own.groupby("launch")}


def unequal_files(here: Here, workload: str) -> dict[str, list[str]] | None:
    """By environment: files of the stack unlike the host's, or on one side only; None without data."""
    files = stack_files(here, workload)
    host = files.pop(HOST, None)
    if not host or not files:
        return None
    return {
        env: sorted(path for path in {*host, *own} if host.get(path) != own.get(path)) for env, own in files.items()
    }


def same_files(claim: Claim, workload: str, environments: Sequence[str], here: Here) -> Answer:
    """Rule `same_files`: what a study of one tree makes so by construction answers no question."""
    unequal = unequal_files(here, workload)
    if unequal is None:
        return opened(NOTHING, "no profiled launch recorded which files it mapped")
    missing = [env for env in environments[1:] if env not in unequal]
    count = len(stack_files(here, workload)[HOST])
    parts = [
        f"{env} {'maps the same bytes' if not paths else f'differs in {len(paths)}: {paths[0]}'}"
        for env, paths in unequal.items()
    ]
    evidence = f"Of {count} files of the stack that the host maps: {'; '.join(parts)}."
    if any(unequal[env] for env in environments[1:] if env in unequal):
        return Answer(here=FAILS, evidence=evidence)
    if missing:
        return opened(evidence, f"{listed(missing)} did not run")
    return Answer(here=OTHER, evidence=evidence, reason=BY_CONSTRUCTION)


def kernels_differ(claim: Claim, workload: str, environments: Sequence[str], here: Here) -> Answer:
    """Rule `kernels_differ`: of the host against all others, or of another environment against the host."""
    others = environments[1:] if claim.env == HOST else [str(claim.env)]
    if here.kernels is None:
        return opened(NOTHING, "this study recorded no kernels of training steps")
    causes = here.kernels["campaign"].map(lambda name: is_headline(name, "causes"))
    own = here.kernels[(here.kernels["workload"] == workload) & causes.astype(bool)]
    compared = {one.env: one for one in compare_sets(own, operators=False)}
    what = "kernels"
    if not compared:
        compared = {one.env: one for one in compare_sets(own, operators=True)}
        what = "operators"
    if HOST not in compared:
        return opened(NOTHING, "this study recorded no kernels on two hosts")
    control = compared.pop(HOST)
    evidence = sentence([_pairs_text(control, what), *(_pairs_text(one, what) for one in compared.values())])
    if not control.pairs or "control" not in set(own["launch_role"]):
        return opened(evidence, "host was not compared with host: one of the two left no kernels")
    if control.equal < control.pairs:
        return opened(evidence, "two launches on the host do not always run the same")
    deciding = [one for env, one in compared.items() if env in others]
    files = unequal_files(here, workload)
    if files is None:
        return opened(evidence, "no profiled launch recorded which files it mapped")
    unknown = [one.env for one in deciding if one.env not in files]
    if unknown:
        return opened(evidence, f"no profiled launch of {listed(unknown)} recorded which files it mapped")
    same = all(not files.get(one.env, ["unknown"]) for one in deciding)
    if any(one.differs for one in deciding):
        return Answer(here=HOLDS, evidence=evidence) if same else _other_files(evidence)
    if len(deciding) < len(others):
        missing = [env for env in others if env not in compared]
        return opened(evidence, f"{listed(missing)} did not run")
    if any(one.equal < one.pairs for one in deciding):
        return opened(evidence, "some launches run what the host does and some do not")
    return Answer(here=FAILS, evidence=evidence) if same else _other_files(evidence)


def _other_files(evidence: str) -> Answer:
    return opened(evidence, "the environments mapped different files of the stack, where the claim has the same")


def _pairs_text(one: SetComparison, what: str) -> str:
    place = "host with host" if one.env == HOST else f"host with {one.env}"
    differ = [*one.only_host, *one.only_here, *(name for name, _, _ in one.counts)]
    first = f", first {differ[0]}" if differ else ""
    return f"{place}: the same {what} in {one.equal} of {one.pairs} pairs of launches{first}"
