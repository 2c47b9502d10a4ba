"""When a cost has a verdict, and which rounds it is of."""

import math
import statistics
from pathlib import Path
from types import SimpleNamespace

import pytest
from campaign_builders import served_rounds

from tare.experiments.sliced import LEFT_OUT
from tare.model.journals.units import real_s
from tare.model.records.launches import Steps
from tare.model.registry import HOST
from tare.model.roles import CONTROL
from tare.stats.intervals import Interval
from tare.weigh.answer import Ratio
from tare.weigh.conclude import Cost, cost_of
from tare.weigh.facts import Mount, Surroundings
from tare.weigh.found import Found, failure_of, steps_remarks
from tare.weigh.places import Place
from tare.weigh.rounds import Rounds


@pytest.mark.parametrize(("rounds", "verdict"), [(3, "inconclusive"), (4, "different")])
def test_fewer_than_four_rounds_give_no_verdict(rounds, verdict):
    run = Interval(n=rounds, mean=0.1, low=0.09, high=0.11)
    assert Cost(run=run, parts={}, step=None).verdict(0.02) == verdict
    assert Cost(run=None, parts={}, step=None).verdict(0.02) == "inconclusive"


def ratios(units, name):
    def log(unit, one):
        return math.log(real_s(unit.launches[one]))

    return [log(unit, name) - statistics.fmean([log(unit, HOST), log(unit, CONTROL)]) for unit in units]


def test_whole_runs_with_a_file_server_count_in_the_rounds_that_were_made_for_them_alone():
    units = served_rounds("rounds.apptainer+docker+host", together=True).counted
    whole = [unit for unit in units if unit.whole]
    run = cost_of(units, "apptainer", 0.05).run
    assert run.n == 8 and run.mean == pytest.approx(statistics.fmean(ratios(whole, "apptainer")), abs=1e-5)
    sliced = [unit for unit in units if not unit.whole]
    assert run.mean > statistics.fmean(ratios(sliced, "apptainer")) + 0.1, "in slices it seems to cost less"
    assert (cost_of(units, "docker", 0.05).run, cost_of(units, CONTROL, 0.05).run) == (
        cost_of(sliced, "docker", 0.05).run, cost_of(sliced, CONTROL, 0.05).run,
    )  # fmt: skip
    compared = cost_of(units, "docker", 0.05, reference="apptainer").run
    assert compared is None or compared.n == 0, "no round has both as they run alone"


@pytest.mark.parametrize(
    ("run", "step", "starts"),
    [
        ((-0.01, 0.01), (-0.01, 0.01), []),
        ((-0.01, 0.01), (0.002, 0.01), ["The A/A control of steps does not"]),
        ((-0.02, -0.01), None, ["The A/A control does not"]),
        ((-0.05, 0.05), None, ["The A/A control spans ±5.0%"]),
    ],
)
def test_a_control_that_leaves_zero_out_is_told(run, step, starts):
    def interval(ends):
        return ends and Interval(n=8, mean=sum(ends) / 2, low=ends[0], high=ends[1])

    found = Found.__new__(Found)
    found.request = SimpleNamespace(margin=0.02, minutes=5.0)
    said = list(found._remarks(Cost(run=interval(run), parts={}, step=interval(step))))
    assert len(said) == len(starts) and all(map(str.startswith, said, starts))


def launched(count, **more):
    steps = Steps(teller="SGD 1" if count else None, ends_ns=tuple(range(count)), **more)
    return SimpleNamespace(ok=True, reason=None, steps=steps)


@pytest.mark.parametrize(
    ("own", "reference", "why"),
    [
        (launched(5), launched(9), "a run has 5 of them, and it takes 8"),
        (launched(9), launched(5), "in host, a run has 5 of them, and it takes 8"),
        (launched(9), launched(0, lacking=("JAX has none",)), "in host, JAX has none"),
        (launched(9), launched(9), "not every round has them"),
    ],
)
def test_steps_that_can_not_be_compared_have_a_reason(own, reference, why):
    found = Found.__new__(Found)
    found.request = SimpleNamespace(reference=SimpleNamespace(name="host"), steps="auto")
    found.units = [SimpleNamespace(launches={HOST: reference, "docker": own})]
    assert found._why_no_steps("docker") == why


def test_a_pattern_that_matches_no_line_is_named():
    found = Found.__new__(Found)
    found.request = SimpleNamespace(reference=SimpleNamespace(name="host"), steps=r"step \d")
    silent = SimpleNamespace(ok=True, steps=Steps(teller=None, ends_ns=()))
    found.units = [SimpleNamespace(launches={HOST: silent, "docker": silent})]
    assert found._why_no_steps("docker") == r"no line of the output of its Python matched --steps 'step \\d'"


@pytest.mark.parametrize(
    ("steps", "hook", "said"),
    [
        (None, None, []),
        (Steps(teller="SGD 1", ends_ns=(1, 2), passes=2), None, []),
        (
            Steps(teller="Adam 1", ends_ns=(1, 2), others=("Adam 2",), passes=4),
            None,
            ["Tare counted the steps of Adam 1, and not those of Adam 2."],
        ),
        (
            Steps(teller="LBFGS 1", ends_ns=(1, 2), passes=40, processes=2),
            None,
            [
                "A step has about 20 backward passes: the optimizer calculates the loss again.",
                "2 processes make steps. Tare compares the process with the most steps.",
            ],
        ),
        (
            Steps(teller="SGD 1", ends_ns=(1, 2, 3), passes=12),
            Ratio(ratio=1.001, low=0.999, high=1.003, rounds=6),
            [
                "A step has about 4 backward passes: it accumulates their gradients.",
                "With the hook that detects steps, a run of host takes between 0.10% less and 0.30% more time.",
            ],
        ),
    ],
)
def test_what_a_step_is_and_what_the_hook_costs_is_said(steps, hook, said):
    unmeasured = ["The cost of the hook that detects steps was not measured."]
    assert list(steps_remarks("host", steps, hook)) == said + (unmeasured if steps and not hook else [])


def test_a_sitecustomize_that_the_reference_lacks_is_named():
    found = Found.__new__(Found)
    own, plain = launched(9, shadowed="/opt/sitecustomize.py"), launched(9)
    found.units = [SimpleNamespace(launches={HOST: plain, "docker": own, "same": plain})]
    (said,) = found._other_site("docker")
    assert "/opt/sitecustomize.py" in said and list(found._other_site("same")) == []
    found.units = [SimpleNamespace(launches={HOST: own, "docker": own})]
    assert list(found._other_site("docker")) == [], "both have it"


def test_a_round_of_other_launches_is_no_failure():
    left_out, failed = (SimpleNamespace(ok=False, reason=reason) for reason in (LEFT_OUT, "no data"))
    assert failure_of([left_out, failed]) == "no data"
    assert failure_of([left_out, launched(9)]) is None


@pytest.mark.parametrize(
    ("run_s", "alone", "fuse", "budget_s", "pilot"),
    [
        (None, (), (), 60.0, 6),  # the job was not tried: nothing is known
        (1.0, (), (), 28.0, 6),  # seven rounds of four launches: a calibration and six
        (1.0, (), (), 27.0, 5),
        (1.0, (), (), 1.0, 4),  # never fewer
        (1.0, ("docker",), (), 42.0, 6),  # its rounds are others, both launches of the reference in them
        (1.0, ("docker",), (), 41.0, 5),
        (1.0, (), ("apptainer",), 56.0, 6),  # once in slices, once without
        (1.0, (), ("apptainer",), 55.0, 5),
    ],
)
def test_a_pilot_is_as_long_as_the_budget_allows(run_s, alone, fuse, budget_s, pilot):
    def place(name):
        return SimpleNamespace(site=None, alone=name if name in alone else None, reads_through_fuse=name in fuse)

    rounds = Rounds(
        None, Path("results"), "campaign", {name: place(name) for name in ("host", "docker", "apptainer")}
    )
    rounds.run_s = run_s
    assert rounds.pilot(budget_s) == pilot


@pytest.mark.parametrize(
    ("runtime", "kind", "served"),
    [("apptainer", "fuse.squashfuse_ll", True), ("apptainer", "overlay", False), ("host", "fuse.lxcfs", False)],
)
def test_files_that_a_process_serves_are_those_of_an_environment_with_fuse(runtime, kind, served):
    mount = Mount(point="/", kind=kind, source="image", options=())
    place = SimpleNamespace(choice=SimpleNamespace(runtime=runtime), seen=Surroundings(mounts=(mount,)))
    assert Place.reads_through_fuse.fget(place) is served
