"""The performance model of training: synthetic machines of known truth, counts, intervals, refusals."""

import importlib
import math
from types import SimpleNamespace

import builders
import numpy as np
import pytest
from campaign_builders import inside as inside_of
from step_builders import BATCHES, CALL_S, FACTORS, STEP_S, TARGET, alike, observed

from tare.core.errors import TareError, UnavailableError
from tare.model.records.launches import Counts
from tare.model.records.measured import CeilingsRecord
from tare.model.schema import parse
from tare.predict import calibrated, cases, elapsed, judge, models, operators, predictor, work
from tare.predict import rows as predict_rows
from tare.stats import conformal
from tare.worker import counting
from tare.worker.families import CONVOLUTION, ELEMENT_WISE, LOOKUP, PRODUCT


def errors(fit, rows):
    tried = judge.leave_out({"m": fit}, rows, judge.GROUPINGS["workload"], beyond=100)
    return judge.score("m", "workload", tried["m"])


# --- what a step does


def test_shapes_alone_give_what_a_real_step_counts():
    torch = pytest.importorskip("torch")
    mnist, language = (importlib.import_module(f"workloads.{name}") for name in ("mnist_cnn", "sentiment_rnn"))
    for module, batch in (
        (mnist, [torch.randn(4, 1, 28, 28), torch.randint(10, (4,))]),
        (language, [torch.ones(4, 20, dtype=torch.long), torch.ones(4)]),
    ):
        job = module.Training(torch, "cpu")
        job.step(batch)  # which makes the optimizer's state
        real = counting.count_step(torch, job, batch)
        shapes = [(tuple(part.shape), part.dtype) for part in batch]
        moves = torch.nn.Module.to
        assert counting.count_shapes(torch, lambda module=module: module.Training(torch, "cpu"), shapes) == real
        assert torch.nn.Module.to is moves


def test_weights_that_are_drawn_until_they_are_within_bounds_are_not_drawn_to_count_a_step():
    torch = pytest.importorskip("torch")
    drawn = torch.nn.init.trunc_normal_

    class Training:
        def __init__(self):
            self.layer = torch.nn.Linear(2, 5)
            torch.nn.init.trunc_normal_(self.layer.weight)

        def step(self, batch):
            self.layer(batch[0]).sum().backward()

    found = counting.count_shapes(torch, Training, [((3, 2), torch.float32)])
    assert found["reason"] is None and found["families"][PRODUCT]["flops"] == 2 * 2 * 3 * 2 * 5
    assert torch.nn.init.trunc_normal_ is drawn


def test_a_step_that_depends_on_values_is_told_as_such():
    torch = pytest.importorskip("torch")

    class Training:
        def step(self, batch):
            return batch[0].sum().item()

    found = counting.count_shapes(torch, Training, [((2,), torch.float32)])
    assert found["families"] is None and "depends on values" in found["reason"]
    with pytest.raises(UnavailableError, match="the work of a step is not known: what the step does depends on"):
        work.of_counts(parse(Counts, found, "counts"))


def test_families_have_names_that_the_worker_gives():
    with pytest.raises(TareError, match="families of operators are some of convolution"):
        parse(work.Work, {"alike": [alike("conv").to_json()]}, "work")


# --- roofs


def test_a_roof_is_looked_up_at_the_size_of_a_call():
    assert TARGET.bytes_per_s(1e7) == pytest.approx(10**10.5)  # half way, in logarithms
    assert TARGET.bytes_per_s(1) == pytest.approx(1e11) and TARGET.flop_per_s("float32", 256) == pytest.approx(
        10**10.5
    )
    with pytest.raises(UnavailableError, match="no ceiling of products in float16, only in float32"):
        TARGET.flop_per_s("float16", 256)
    # two products of 1024 x 1024 matrices that move next to nothing; a copy of 1e9 bytes
    calls = (alike(PRODUCT, 2, flops=2 * 1024**3, moved=5), alike(ELEMENT_WISE, moved=10**9))
    case = observed(1)[0].replace(work=work.Work(alike=calls))
    assert case.roofs == pytest.approx({PRODUCT: 4 * 1024**3 / 1e11, ELEMENT_WISE: 0.1})


def test_calls_take_what_calls_of_their_operator_took_alone_or_those_of_their_family():
    timed = [
        operators.TimedCalls(
            alike=(alike(PRODUCT, operator="aten::mm", flops=2 * size**3, moved=12 * size**2),),
            seconds=factor * size**3,
        )
        for size in (64, 128, 256, 512)
        for factor in (1e-10,)
    ] + [
        operators.TimedCalls(alike=(alike(ELEMENT_WISE, 2, moved=moved),), seconds=2 * (1e-6 + moved / 2e9))
        for moved in (10**3, 10**5, 10**7)
    ]
    found = operators.CallTimes(timed, lambda call: call.flops / 1e12 + call.bytes / 1e10)
    for size in (64, 200, 512):
        call = alike(PRODUCT, operator="aten::mm", flops=2 * size**3, moved=12 * size**2)
        assert found.seconds(call) == pytest.approx(1e-10 * size**3, rel=0.15)
    assert found.seconds(alike(ELEMENT_WISE, operator="aten::other", moved=10**6)) == pytest.approx(5e-4, rel=0.25)
    # far larger than what was timed: as far from its roof as the largest
    assert found.seconds(alike(ELEMENT_WISE, operator="aten::other", moved=10**10)) == pytest.approx(5, rel=0.25)
    assert found.seconds(alike(LOOKUP, moved=10**9)) == pytest.approx(0.1)  # a family that was not timed: the roof
    assert found.seconds(alike(ELEMENT_WISE, moved=0)) == 0  # a view


def test_new_memory_takes_time_but_for_a_steady_allocator():
    rows = []
    for row in observed(6, environments={"host": 0.0}):
        calls = tuple(
            one.replace(made_bytes=one.bytes, mapped_bytes=one.bytes if one.bytes > 10**6 else 0)
            for one in row.work.alike
        )
        does = work.Work(alike=calls)
        assert does.made_bytes + does.mapped_bytes == does.all_bytes
        more = 2e-10 * does.made_bytes + 5e-10 * does.mapped_bytes
        rows += [
            row.replace(work=does, seconds=row.seconds + more),
            row.replace(work=does, settings=(cases.STEADILY,)),
        ]
    fitted = models.fit_roofline(rows)
    assert fitted.predict(rows) == pytest.approx([row.seconds for row in rows], rel=0.02)
    assert fitted.mapped_byte_s == pytest.approx(5e-10, rel=0.1) and fitted.made_byte_s == pytest.approx(
        2e-10, rel=0.1
    )
    parts = [fitted.parts(row).get(models.NEW_MEMORY) for row in rows[:2]]
    assert parts[0] > 0 == parts[1]
    on_device = rows[0].replace(target=TARGET.replace(device="cuda"))
    assert fitted.parts(on_device)[models.NEW_MEMORY] == 0  # its allocator keeps what was freed


def test_a_layout_that_calls_were_timed_in_is_predicted_from_them_and_others_are_measured():
    """Large convolutions gain by the layout and small ones lose; products were timed in one layout alone."""
    sizes = {64: 1.5, 256: 1.0, 1024: 0.6}
    product = alike(PRODUCT, flops=10**6, moved=10**5)

    def convolution(size):
        return alike(CONVOLUTION, operator="aten::convolution", flops=100 * size**2, moved=8 * size**2)

    timed = [
        operators.TimedCalls(
            alike=(convolution(size),), seconds=1e-9 * size**2, channels_last_s=1e-9 * size**2 * factor
        )
        for size, factor in sizes.items()
    ]
    timed.append(operators.TimedCalls(alike=(product,), seconds=1e-4))
    target = TARGET.replace(operators=tuple(timed))
    assert target.modelled == {cases.STEADILY, cases.CHANNELS_INNERMOST} and TARGET.modelled == {cases.STEADILY}

    def roofs(size, *settings):
        return cases.Case(
            workload="w", environment="host", stack="s", batch=1, target=target, environment_step_s=0.0,
            work=work.Work(alike=(convolution(size), product)), settings=settings,
        ).roofs  # fmt: skip

    for size, factor in sizes.items():
        plain, innermost = roofs(size), roofs(size, cases.CHANNELS_INNERMOST)
        assert innermost[CONVOLUTION] / plain[CONVOLUTION] == pytest.approx(factor, rel=0.1)
        assert innermost[PRODUCT] == plain[PRODUCT]
    logs = {settings: {"a": [math.log(0.5)], "b": [math.log(0.5)]} for settings in [(("onednn", "off"),)]}
    effects = predict_rows.Effects(added={}, setting_logs=logs, modelled=target.modelled)
    assert effects.factor((cases.CHANNELS_INNERMOST,)) == effects.factor(()) == 1
    assert effects.factor((cases.CHANNELS_INNERMOST, ("onednn", "off"))) == pytest.approx(0.5)
    assert effects.factor((cases.STEADILY, ("isa", "avx2"))) is None
    assert effects.factor((("onednn", "off"),), without="a") == pytest.approx(0.5)


def test_a_family_that_was_hardly_trained_on_may_take_a_quarter_of_a_step_if_its_calls_were_timed():
    trained = predictor.Range(
        kinds={name: frozenset([value]) for name, value in predictor._kinds(observed(1)[0]).items()},
        sizes={name: (0.0, 1e18) for name in predictor._sizes(observed(1)[0])},
        shares={CONVOLUTION: 1.0, PRODUCT: 1.0, ELEMENT_WISE: 0.01},
        beyond=2,
    )
    timed = tuple(
        operators.TimedCalls(alike=(alike(family, moved=size),), seconds=1e-10 * size)
        for family in (PRODUCT, ELEMENT_WISE)
        for size in (10**3, 10**4, 10**5, 10**6)
    )
    for times, most in ((), 0.1), (timed, 0.25):
        target = TARGET.replace(operators=times)
        found = []
        for share in (0.01, 0.05, 0.1, 0.2, 0.3, 0.5):
            moved = {PRODUCT: int(10**6 * (1 - share)), ELEMENT_WISE: int(10**6 * share)}
            calls = tuple(alike(family, 1000, moved=size) for family, size in moved.items())
            case = observed(1)[0].replace(target=target, work=work.Work(alike=calls))
            found.append((predictor._shares(case)[ELEMENT_WISE], len(trained.refusals(case))))
        assert all(refused == (share > most) for share, refused in found)
        assert {refused for _, refused in found} == {0, 1}


def test_factors_of_families_stay_near_each_other_where_their_calls_were_timed():
    timed = (operators.TimedCalls(alike=(alike(LOOKUP),), seconds=1.0),)  # of a family that no step has
    rows = observed(4)
    free = models.fit_roofline(rows).factors
    near = models.fit_roofline([row.replace(target=row.target.replace(operators=timed)) for row in rows]).factors
    assert max(near.values()) / min(near.values()) < 1.2 < max(free.values()) / min(free.values())


def test_a_target_is_read_from_a_record_of_ceilings():
    base = {
        **{"study": "s", "env": "host", "status": "ok", "reason": None, "device": "cpu"},
        "machine": {"name": "m", "cpu_model": "P"},
        "inside": inside_of("host", "ceilings", results=builders.ceilings_results()),
    }
    record = parse(CeilingsRecord, base, "ceilings")
    found, measured = cases.target_of(record), builders.ceilings_results()
    assert (found.machine, found.processor, found.threads) == ("m", "P", measured["threads"])
    best = max(row["flop_per_s"] for row in measured["gemm"] if row["precision"] == "float32")
    assert max(rate.per_s for rate in found.products["float32"]) == best
    with pytest.raises(UnavailableError, match="which machine they are of"):
        cases.target_of(parse(CeilingsRecord, {**base, "machine": None}, "ceilings"))


# --- models


def test_a_machine_that_follows_the_roofline_is_predicted_to_one_percent():
    found = errors(models.fit_roofline, observed())
    assert found.rows == 96 and found.refused == 0
    assert found.median_error < 0.01 and found.p90_error < 0.01
    fitted = models.fit_roofline(observed())
    assert (fitted.call_s, fitted.step_s) == pytest.approx((CALL_S, STEP_S), rel=0.05)
    assert {name: fitted.factors[name] for name in FACTORS} == pytest.approx(FACTORS, rel=0.05)


def test_an_environment_is_predicted_from_what_the_others_add():
    rows = observed(environments={"host": 0.0, "docker": 2e-4, "podman": 2e-4})
    found = judge.leave_out({"m": models.fit_roofline}, rows, judge.GROUPINGS["environment"])["m"]
    contained = [one for one in found if one.row.environment != "host" and not one.trained]
    assert judge.score("roofline", "environment", contained).p90_error < 0.01
    # what an environment was measured to add itself has no part in its prediction
    slower = [row.replace(seconds=2 * row.seconds) if row.environment == "podman" else row for row in rows]
    again = judge.leave_out({"m": models.fit_roofline}, slower, judge.GROUPINGS["environment"])["m"]
    seconds = [
        [one.prediction.seconds for one in those if one.group == one.row.environment == "podman"]
        for those in (found, again)
    ]
    assert seconds[0] == pytest.approx(seconds[1], rel=1e-6)


def test_an_environment_that_was_left_out_is_chosen_among_those_that_were_measured():
    """The host is the fastest; podman, left out, is taken to add what docker adds, not what it adds itself."""
    rows = observed(4, batches=(16,), environments={"host": 0.0, "docker": 2e-4, "podman": 9e-4})
    tried = judge.leave_out({"m": models.fit_roofline}, rows, judge.GROUPINGS["environment"])["m"]
    assert len(tried) == 3 * len(rows) and sum(not one.trained for one in tried) == len(rows)
    found = judge.score("m", "environment", tried)
    assert (found.rows, found.choices, found.mean_regret) == (12, 12, 0)
    docker, host, podman = judge.by_group("environment", "m", tried)[:3]
    assert {docker.left_out, host.left_out, podman.left_out} == {"host", "docker", "podman"}
    assert all(one.rows == one.choices == 4 for one in (docker, host, podman))


def test_what_is_left_out_has_no_part_in_what_settings_gain():
    rows = observed(5, batches=(16, 32), environments={"host": 0.0})
    layout = (("layout", "channels-last"),)
    rows += [row.replace(settings=layout, factor=0.8, seconds=0.8 * row.seconds) for row in rows]
    odd = [row.replace(seconds=3 * row.seconds) if row.settings and row.workload == "w0" else row for row in rows]
    fits = {"m": models.fit_roofline}
    for given in (rows, odd):
        found = judge.leave_out(fits, given, judge.GROUPINGS["workload"], beyond=100)["m"]
        own = {
            one.row.settings: one.prediction.seconds
            for one in found
            if (one.row.workload, one.row.batch) == ("w0", 16)
        }
        assert own[layout] / own[()] == pytest.approx(0.8, rel=1e-3)
    few = [row for row in rows if not row.settings or row.workload in ("w0", "w1")]
    found = judge.leave_out(fits, few, judge.GROUPINGS["workload"], beyond=100)["m"]
    assert {one.refused for one in found if one.row.settings} == {
        "what its settings do to other networks is not known, or differs"
    }


def test_the_choice_among_models_is_made_without_what_is_left_out():
    class Knows:
        """Right about all workloads but one, by which it is never the best where that one is known."""

        def __init__(self, rows, wrong):
            self.wrong, self.seconds = wrong, {row.workload: row.seconds for row in rows}

        def predict(self, wanted):
            return np.array([case.batch * (3.0 if case.workload == self.wrong else 1.1) for case in wanted])

    rows = [row.replace(seconds=float(row.batch)) for row in observed(3, batches=(16,), environments={"host": 0.0})]
    fits = {
        "bad at w0": lambda given: Knows(given, "w0"),
        "steady": lambda given: SimpleNamespace(
            predict=lambda wanted: np.array([1.2 * case.batch for case in wanted])
        ),
    }
    found = judge.leave_out(fits, rows, judge.GROUPINGS["workload"], beyond=100)
    ratios = {one.row.workload: one.prediction.seconds / one.row.seconds for one in found[judge.CHOSEN]}
    assert ratios["w0"] == pytest.approx(3.0), "without w0 the first looks better"
    assert predictor.best_of({name: predictor.train(fit, rows) for name, fit in fits.items()}) == "bad at w0"
    assert predictor.best_of({}) is None


def test_a_linear_machine_is_predicted_by_the_linear_model_which_never_goes_below_what_was_observed():
    rows = [
        row.replace(seconds=1e-3 + 1e-12 * row.work.all_flops + 3e-12 * row.work.all_bytes + row.environment_step_s)
        for row in observed()
    ]
    fitted = models.fit_linear(rows)
    assert fitted.predict(rows) == pytest.approx([row.seconds for row in rows], rel=1e-6)
    downhill = [row.replace(seconds=1 / row.batch) for row in rows]
    far = [downhill[0].replace(batch=10**9)]
    assert models.fit_linear(downhill).predict(far)[0] == pytest.approx(1 / max(BATCHES))


def test_the_correction_learns_what_the_roofline_misses_and_leaves_a_perfect_one_alone():
    pytest.importorskip("sklearn")
    quirk = observed(10, noise=lambda _, case: 0.4 * math.tanh(math.log2(case.batch) - 5))
    known, new = ([row for row in quirk if (row.workload in ("w8", "w9")) is far] for far in (False, True))
    seconds = np.array([row.seconds for row in new])
    missed = {
        name: np.median(np.abs(models.MODELS[name](known).predict(new) / seconds - 1))
        for name in ("roofline", "corrected")
    }
    assert missed["corrected"] < missed["roofline"] / 3
    exact = observed(4)
    assert models.fit_corrected(exact).predict(exact) == pytest.approx([row.seconds for row in exact], rel=0.01)


# --- intervals


def test_quantiles_of_groups_weigh_each_group_alike():
    many, few = np.arange(100.0), np.array([200.0])
    # a third each for the two groups, and one for what is beyond: half is reached in the second, nothing at 0.7
    assert (
        conformal.grouped_quantile([many, few], 0.5) == 200 and conformal.grouped_quantile([many, few], 0.7) == 89
    )
    assert conformal.grouped_quantile([many, few], 0.3) == math.inf
    assert [conformal.fewest_groups(alpha) for alpha in (0.5, 0.1, 0.05)] == [1, 9, 19]
    nine = [np.array([float(value)]) for value in range(9)]
    assert conformal.grouped_quantile(nine, 0.1) == 8 and conformal.grouped_quantile(nine[:8], 0.1) == math.inf


def test_an_interval_rests_on_what_models_without_each_group_predict():
    left_out = [
        conformal.LeftOut(predicted=at, residuals=np.array([-missed])) for at, missed in ((1, 0.5), (3, 0.1))
    ]
    found = conformal.jackknife_plus(2.0, left_out, 0.5)
    assert (found.low, found.mean, found.high, found.n) == (0.5, 2.0, 3.1, 2)
    assert conformal.jackknife_plus(9.0, left_out, 0.5).high == 9  # what is predicted lies within


def test_errors_of_a_workload_are_those_of_a_model_that_never_saw_it():
    rows = observed(3)

    class Seen:
        def __init__(self, given):
            self.workloads = {row.workload for row in given}

        def predict(self, wanted):
            return np.array([1.0 if case.workload in self.workloads else 2.0 for case in wanted])

    trained = predictor.train(Seen, rows)
    assert [sorted(model.workloads) for model, _ in trained.left_out] == [["w1", "w2"], ["w0", "w2"], ["w0", "w1"]]
    seconds = np.log([row.seconds for row in rows if row.workload == "w1"])
    assert trained.left_out[1][1] == pytest.approx(seconds - math.log(2))
    assert trained.model.workloads == {"w0", "w1", "w2"}


@pytest.mark.parametrize("level", [0.1, 0.2])
def test_intervals_hold_values_of_a_new_group_as_often_as_they_say(level):
    """Effects of groups and noise that grows with them; the model is the mean of groups' means."""
    generator, held, plain, runs = np.random.default_rng(3), 0, 0, 1500
    for _ in range(runs):
        spreads = generator.uniform(0.1, 1, 20)
        groups = [effect + spread * generator.standard_normal(generator.integers(2, 12))
                  for effect, spread in zip(generator.standard_normal(20), spreads, strict=True)]  # fmt: skip
        new, known = groups[0][0], groups[1:]
        means = np.array([group.mean() for group in known])
        others = (means.sum() - means) / (len(means) - 1)
        left_out = [
            conformal.LeftOut(predicted=other, residuals=group - other)
            for other, group in zip(others, known, strict=True)
        ]
        found = conformal.jackknife_plus(float(means.mean()), left_out, level)
        held += found.low <= new <= found.high
        within = np.concatenate([group - mean for group, mean in zip(known, means, strict=True)])
        plain += abs(new - means.mean()) <= np.quantile(np.abs(within), 1 - level)
    assert held / runs >= 1 - level - 3 * math.sqrt(level * (1 - level) / runs)
    assert held / runs <= 1 - level + 0.06  # and they are no wider than they need
    assert plain / runs < 1 - level - 0.2  # residuals of groups that were fitted to promise too much


def test_noise_that_differs_between_workloads_and_batches_keeps_coverage():
    def noise(generator, case):
        own = np.random.default_rng(int(case.workload[1:])).normal(0, 0.1)  # shared by all steps of a workload
        return own + generator.normal(0, 0.02 + 0.1 * case.batch / max(BATCHES))

    covered = total = 0
    for seed in range(4):
        found = errors(models.fit_roofline, observed(12, noise, seed, batches=(16, 128)))
        covered, total = covered + found.covered, total + found.intervals
    assert total == 4 * 48 and 0.85 <= covered / total < 1


def test_with_few_workloads_intervals_have_no_ends_and_one_is_refused():
    rows = observed(4)
    trained = predictor.train(models.fit_roofline, rows)
    found = trained.predict(rows[:1])[0]
    assert (found.low, found.high, trained.workloads_wanted) == (None, None, 5)
    with pytest.raises(UnavailableError, match="a model needs two workloads to be trained on, there is w0"):
        predictor.train(models.fit_roofline, observed(1))


# --- scaled to one launch of the job


def odd_networks(networks=12, spread=0.3, launch=0.0):
    """Networks of which each takes its own number of times what the roofline says, in all places, and the launch of
    each that was alone, in the batch of 32.
    """
    own = np.random.default_rng(5).normal(0, spread, networks)
    generator, rows = np.random.default_rng(6), []
    for row in observed(networks, noise=lambda generator, case: own[int(case.workload[1:])]):
        is_alone = (row.environment, row.batch) == ("host", 32)
        alone_s = row.seconds * math.exp(generator.normal(0, launch)) if is_alone else None
        rows.append(row.replace(alone_s=alone_s, variant="small"))
    twice = [row.replace(batch=32) for row in rows if row.environment == "host" and row.batch == 64]
    return rows + [row.replace(settings=(cases.STEADILY,)) for row in twice]  # of 32 there is most


def test_one_launch_of_a_job_says_how_long_its_steps_take_and_the_model_how_places_differ():
    rows = odd_networks()
    tried = judge.leave_out(
        {"m": models.fit_roofline}, rows, judge.GROUPINGS["workload"], beyond=100, calibrated=True
    )
    shapes, scaled = (judge.score(name, "workload", tried[name]) for name in ("m", judge.CALIBRATED))
    assert scaled.median_error < 0.02 < 0.1 < shapes.median_error
    assert scaled.rows == shapes.rows - 12, "the launch that scales is known, and not judged"
    assert scaled.coverage[0] > 0.85 and scaled.choices == shapes.choices
    own = {one.row.workload: one for one in tried[judge.CALIBRATED] if one.scales}
    assert len(own) == 12 and all(one.prediction.seconds == pytest.approx(one.row.alone_s) for one in own.values())
    widths = [
        [math.log(one.prediction.high / one.prediction.low) for one in tried[name]]
        for name in ("m", judge.CALIBRATED)
    ]
    assert np.median(widths[1]) < np.median(widths[0]) / 2


def test_what_one_launch_differs_from_the_next_by_is_part_of_the_errors():
    rows = odd_networks(launch=0.1)
    tried = judge.leave_out(
        {"m": models.fit_roofline}, rows, judge.GROUPINGS["workload"], beyond=100, calibrated=True
    )
    found = judge.score("m", "workload", tried[judge.CALIBRATED])
    assert 0.03 < found.median_error < 0.15 and found.coverage[0] > 0.85
    # other launches count where there are some: the same in slices, a tenth longer
    longer = [row.replace(in_slices_s=1.1 * row.seconds) for row in odd_networks()]
    again = judge.leave_out(
        {"m": models.fit_roofline}, longer, judge.GROUPINGS["workload"], beyond=100, calibrated=True
    )
    found = judge.score("m", "workload", again[judge.CALIBRATED])
    assert found.median_error == pytest.approx(1 - 1 / 1.1, abs=0.02)


def test_a_launch_is_of_the_batch_with_most_places_and_without_one_nothing_is_scaled():
    rows = odd_networks(3)
    found = calibrated.timed_alone([row for row in rows if row.workload == "w0"])
    assert [(one.batch, one.environment, one.settings) for one in found.values()] == [(32, "host", ())]
    nobody = [row.replace(alone_s=None) for row in rows]
    trained = predictor.train(models.fit_roofline, nobody)
    with pytest.raises(UnavailableError, match="can't be scaled by a launch: no other network was timed"):
        calibrated.calibrate(trained, rows[0], 1.0)
    tried = judge.leave_out({"m": models.fit_roofline}, nobody, judge.GROUPINGS["workload"], calibrated=True)
    assert {one.refused for one in tried[judge.CALIBRATED]} == {"no launch of it had the host to itself"}


def test_a_scaled_step_has_the_same_parts():
    rows = odd_networks()
    trained = predictor.train(models.fit_roofline, rows)
    scaled = calibrated.calibrate(trained, rows[0], 3 * rows[0].seconds)
    assert elapsed.parts_of(scaled.model, rows[1]) == elapsed.parts_of(trained.model, rows[1])
    assert scaled.predict([rows[0]])[0].seconds == pytest.approx(3 * rows[0].seconds)
    pairs = [(rows[0], rows[at]) for at in range(1, 6)]
    margins = [[one.ratio_margin(*pair) for pair in pairs] for one in (trained, scaled)]
    assert margins[0] == margins[1] and None not in margins[0], "ratios are as certain as before"
    with_factor = rows[0].replace(settings=(("amp", "bf16"),), factor=0.5)
    assert scaled.predict([with_factor])[0].seconds == pytest.approx(1.5 * rows[0].seconds, rel=1e-6)


# --- refusals


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"target": TARGET.replace(processor="Q")}, "its processor is Q, trained on was P: measure training steps"),
        ({"stack": "other"}, "its stack is other, trained on was s: measure"),
        ({"batch": 1000}, "its batch, 1000, is more than 2 times beyond 16 to 128: measure"),
        ({"batch": 7}, "its batch, 7, is more than 2 times beyond 16 to 128: measure"),
        ({"target": TARGET.replace(threads=8)}, "its threads, 8, is more than 2 times beyond 2 to 2"),
        ({"work": work.Work(alike=(alike(LOOKUP, 90, flops=10**7, moved=10**6),))},
         "100% of its step is embedding, 0% at most was trained on: measure training steps of a workload"),
    ],
)  # fmt: skip
def test_what_lies_beyond_the_range_is_refused_and_says_what_to_measure(changed, told):
    rows = observed(3)
    trained = predictor.train(models.fit_roofline, rows)
    with pytest.raises(UnavailableError) as caught:
        trained.predict([rows[0].replace(**changed)])
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_steps_that_are_refused_have_no_part_in_intervals_and_errors():
    """One workload of twelve is like no other: far larger, and far off what the others predict."""
    far = [
        row.replace(
            workload="far", seconds=1e3 * row.seconds,
            work=work.Work(alike=tuple(one.replace(calls=100 * one.calls) for one in row.work.alike)),
        )
        for row in observed(1, seed=7)
    ]  # fmt: skip
    rows = observed(11, noise=lambda generator, case: generator.normal(0, 0.05))
    without = predictor.train(models.fit_roofline, rows)
    trained = predictor.train(models.fit_roofline, rows + far)
    assert len(trained.left_out) == len(without.left_out) == 11 and len(trained.refused_errors) == 1
    assert trained.median_error < 0.2 < np.abs(np.expm1(-trained.refused_errors[0])).min()
    alone = predictor.train(models.fit_roofline, far + observed(1))
    assert not alone.left_out and alone.median_error > 0  # of the refused, as there are no others
    assert alone.predict(far[:1])[0].low is None


def test_a_little_beyond_the_range_is_predicted():
    rows = observed(3)
    case = rows[0].replace(batch=2 * max(BATCHES))
    assert predictor.train(models.fit_roofline, rows).predict([case])[0].seconds > 0


def test_an_environment_cannot_add_more_than_was_measured():
    row = observed(1)[0]
    with pytest.raises(TareError, match="environment_step_s, 2"):
        parse(cases.Observation, row.to_json() | {"environment_step_s": 2 * row.seconds + 2}, "row")


# --- judging


def predicted(row, seconds):
    told = None if seconds is None else predictor.Prediction(seconds=seconds, low=None, high=None)
    return judge.Tried(row=row, prediction=told)


def test_regret_is_zero_where_the_ranking_is_right_and_what_a_wrong_choice_costs_elsewhere():
    host, docker = observed(1, batches=(16,))
    host, docker = host.replace(seconds=1.0), docker.replace(seconds=1.5)
    assert judge.regrets([predicted(host, 7), predicted(docker, 8)]) == [0]
    assert judge.regrets([predicted(host, 8), predicted(docker, 7)]) == [0.5]
    assert judge.regrets([predicted(host, 7)]) == []
    # the fastest place counts where it was refused too; a job without any prediction has no choice
    assert judge.regrets([predicted(host, None), predicted(docker, 7)]) == [0.5]
    assert judge.regrets([predicted(host, None), predicted(docker, None)]) == []
    assert errors(models.fit_roofline, observed(4)).worst_regret == 0


def test_regret_is_of_places_of_one_job_and_stands_beside_the_default_and_a_place_that_is_drawn():
    host, docker = observed(1, batches=(16,))
    host, docker = host.replace(seconds=1.0), docker.replace(seconds=1.5)
    larger = [row.replace(work=observed(2)[-1].work, seconds=10 * row.seconds) for row in (host, docker)]
    told = [predicted(host, 8), predicted(docker, 7), *(predicted(row, 70) for row in larger)]
    assert judge.regrets(told) == [0.5, 0], "another size of images is another job"
    single = host.replace(target=host.target.replace(threads=1), seconds=2.0)
    told = [predicted(single, 1), predicted(host.replace(seconds=1.6), 2), predicted(docker, 3)]
    assert judge.default_regrets(told) == [pytest.approx(1.6 / 1.5 - 1)]
    assert judge.random_regrets(told) == [pytest.approx((2.0 + 1.6 + 1.5) / 3 / 1.5 - 1)]
    assert judge.default_regrets(told[2:]) == judge.random_regrets(told[2:]) == []


def test_the_regret_of_what_was_best_so_far_is_by_other_workloads_alone():
    host, docker = observed(1, batches=(16,))
    told = []
    for number, (host_s, docker_s) in enumerate([(1.0, 1.1), (1.0, 1.3), (2.0, 1.0)]):
        named = [(host, host_s), (docker, docker_s)]
        told += [predicted(row.replace(workload=f"w{number}", seconds=s), 1) for row, s in named]
    # of the first two, the others say docker; of the last, the host
    assert judge.past_regrets(told) == [pytest.approx(0.1), pytest.approx(0.3), pytest.approx(1.0)]
    assert judge.past_regrets(told[:2]) == [], "there is no other workload"
    near = judge.score("m", "workload", told)
    assert (near.choices, near.near, near.past_regret) == (3, 2, pytest.approx(1.4 / 3))


def test_a_score_counts_what_was_refused_and_what_was_covered():
    row = observed(1)[0].replace(seconds=1.0)
    told = [predictor.Prediction(seconds=s, low=0.9, high=1.2) for s in (1.1, 0.8)]
    told.append(predictor.Prediction(seconds=1.3, low=1.1, high=1.5))
    tried = [judge.Tried(row=row, prediction=one) for one in told] + [
        judge.Tried(row=row, prediction=None, refused="x")
    ]
    found = judge.score("m", "workload", tried)
    assert (found.rows, found.refused, found.covered, found.intervals) == (4, 1, 2, 3)
    assert found.median_error == pytest.approx(0.2) and found.p90_error == pytest.approx(0.28)
    assert found.coverage[0] == pytest.approx(2 / 3) and found.coverage[1] < 2 / 3 < found.coverage[2]
    apart = [
        judge.Tried(row=row.replace(workload=f"w{number % 4}"), prediction=told[0] if number % 4 else told[2])
        for number in range(40)
    ]
    found = judge.score("m", "workload", apart)
    assert found.by_network == ((0, 10), (10, 10), (10, 10), (10, 10)) and found.coverage[0] == 0.75
    assert found.coverage[1] < 0.2, "ten steps of a network that is missed are one miss"
    nothing = judge.score("m", "workload", tried[-1:])
    assert nothing.median_error is None and nothing.coverage is None and nothing.refused == 1


def test_the_table_has_every_model_by_every_grouping_and_ranges_of_batches_are_left_out_whole():
    rows = observed(3, batches=(16, 128))
    tried = judge.tries(rows, {name: models.MODELS[name] for name in ("linear", "roofline")})
    found = judge.table(tried)
    assert [(one.left_out, one.model) for one in found] == [
        (grouping, model)
        for grouping in ("workload", "batch range", "environment")
        for model in ("linear", "roofline", judge.CHOSEN, judge.CALIBRATED)
        if model != judge.CALIBRATED or grouping == "workload"
    ]
    batches = next(one for one in found if one.left_out == "batch range")
    assert batches.refused == batches.rows  # 16 and 128 lie eight times apart
    assert {judge.GROUPINGS["batch range"](row) for row in observed(1, batches=(16, 63, 64, 255))} == {2, 3}
    groups = judge.by_group("batch range", "linear", tried["batch range", "linear"])
    assert [(one.left_out, one.rows) for one in groups] == [("16 to 63", 6), ("64 to 255", 6)]
    groups = judge.by_group("workload", "roofline", tried["workload", "roofline"])
    assert [one.left_out for one in groups] == ["w0", "w1", "w2"] and all(one.rows == 4 for one in groups)
