"""A whole training run as the paper timed it, and the parts of one that other launches share."""

import copy
import importlib
import itertools
import resource
import sys
from functools import partial
from typing import Any, Collection, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from tare.worker import frameworks, settings
from tare.worker.apart import apart, refuse_if_alone
from tare.worker.frameworks import Framework
from tare.worker.marks import Marks, Watch, now_ns, peak_memory, usage

MOST_BATCH_BYTES = 64 << 20
LEAST_BUSY_S = 0.2  # of steps, to say how many processors they kept busy
LEAST_BATCHES = 4


def jobs_of(spec: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """The jobs of a launch: each a separate specification, laid over the launch's; one where it names none."""
    return [dict(spec, **job) for job in spec.get("jobs", [{}])]


def import_workload(spec: Mapping[str, Any], marks: Marks, threads: int) -> Tuple[Framework, Any]:
    """Import framework and workload; returns both. Raises Unable where one of them or a setting is lacking."""
    workload = importlib.import_module("workloads." + spec["workload"])
    framework = frameworks.of(spec)
    training = frameworks.training_class(workload, framework.name)
    settings.begin(framework, spec.get("settings") or {})
    framework.import_()
    framework.set_threads(threads)
    for module in getattr(training, "imports", workload.DESCRIPTION["imports"]):
        import_first(module if isinstance(module, (tuple, list)) else (module,))
    framework.import_late()
    marks.add("imports")
    return framework, workload


def import_workloads(jobs: Sequence[Mapping[str, Any]], marks: Marks, threads: int) -> Tuple[Framework, List[Any]]:
    """As `import_workload` for several jobs; returns (framework, their modules), the mark set after the last."""
    before = Marks(now_ns())
    modules = [import_workload(job, before, threads)[1] for job in jobs[:-1]]
    framework, last = import_workload(jobs[-1], marks, threads)
    return framework, modules + [last]


def import_first(names: Sequence[str]) -> Any:
    """Import the first of `names` that this stack has. Raises ImportError where it has none of them."""
    for name in names[:-1]:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            if getattr(error, "name", None) != name:  # it is there, and something that it needs is not
                raise
    return importlib.import_module(names[-1])


def description(workload: Any, spec: Mapping[str, Any]) -> Dict[str, Any]:
    """What a workload says of itself, at a launch's options where it has any."""
    found: Dict[str, Any] = workload.described(spec["options"]) if spec.get("options") else workload.DESCRIPTION
    return found


def chosen(spec: Mapping[str, Any]) -> Tuple[Any, ...]:
    """The last arguments of what a workload is called with: its options, where it has any."""
    return (spec["options"],) if spec.get("options") else ()


def load(framework: Framework, workload: Any, spec: Mapping[str, Any]) -> Any:
    """The workload's samples, or those that a setting brings. Raises ValueError where they are not as many as
    described (rates would be another job's), or less than a batch; Unable for an unfit setting.
    """
    own = frameworks.training_class(workload, framework.name)
    expected = description(workload, spec)["samples"]
    dataset = settings.samples(framework, own, expected, spec)
    if dataset is None:
        dataset = own.load(spec["data"], *chosen(spec))
    if len(dataset) != expected:
        raise ValueError("the data has {} samples, the description says {}".format(len(dataset), expected))
    different = getattr(dataset, "different", None)
    if different is not None and different < spec["batch"]:
        raise ValueError("the data has {} samples, less than one batch of {}".format(different, spec["batch"]))
    return dataset


def build(framework: Framework, workload: Any, spec: Mapping[str, Any], marks: Marks) -> Tuple[Any, Any]:
    """Data, then model; returns (dataset, training)."""
    dataset = load(framework, workload, spec)
    marks.add("data")
    training = build_model(framework, workload, spec)
    marks.add("model")
    return dataset, training


def build_model(framework: Framework, workload: Any, spec: Mapping[str, Any]) -> Any:
    """The training job on its device, at the launch's settings. Asserts the size of the model."""
    wanted = spec.get("settings") or {}
    settings.prepare(framework, wanted)
    own = frameworks.training_class(workload, framework.name)
    training = own(framework.module, framework.device, *chosen(spec))
    framework.synchronize()
    parameters = framework.parameters(training)
    expected = description(workload, spec)["parameters"]
    if parameters != expected:
        raise ValueError("the model has {} parameters, its description says {}".format(parameters, expected))
    settings.apply(framework, training, wanted)
    if framework.size > 1:
        framework.share(training, spec.get("exchange"))
    return training


def epoch(framework: Framework, dataset: Any, spec: Mapping[str, Any]) -> Iterable[Any]:
    """The batches of one epoch: as the data itself gives them, or by the framework's loader."""
    if hasattr(dataset, "batches"):
        given: Iterable[Any] = dataset.batches(spec["batch"])
        return given
    return framework.loader(dataset, spec)


def run_epoch(
    framework: Framework,
    training: Any,
    loader: Iterable[Any],
    marks: Optional[Marks] = None,
    waits: Collection[int] = (),
) -> Tuple[List[int], List[float], int]:
    """One epoch. Returns (ends of its steps in ns, losses as floats, samples).

    On a CUDA device a step's end is the end of its submission, but for the first one with `marks` and those that
    `waits` numbers, from 1, after which the device is waited for; the epoch's own end is synchronised.
    """
    ends: List[int] = []
    losses, samples = [], 0
    for batch in loader:
        losses.append(training.step(batch))
        samples += len(batch[-1])
        if marks is not None and not ends:
            framework.synchronize()
            ends.append(marks.add("first_step"))
            marks.end_watch()  # before any step that is timed alone
            continue
        if len(losses) in waits:
            framework.synchronize()
        ends.append(now_ns())
    framework.synchronize()
    values = frameworks.finite(losses)
    training.end_epoch()
    return ends, values, samples


def first_batches(framework: Framework, dataset: Any, batch: int) -> List[Any]:
    """The first full batches of a dataset, in order, in the host's memory: what steps go round on. As many
    as fit into MOST_BATCH_BYTES, LEAST_BATCHES at least. Raises ValueError for data of less than one batch.
    """
    kept: List[Any] = []
    held = 0
    if hasattr(dataset, "epoch"):  # those of the first one, however many came before
        dataset = copy.copy(dataset)
        dataset.epoch = 0
    given = dataset.batches(batch) if hasattr(dataset, "batches") else framework.batches(dataset, batch)
    for one in itertools.islice(given, getattr(dataset, "distinct", None)):
        if len(one[-1]) < batch:
            break
        held += framework.batch_bytes(one)
        if held > MOST_BATCH_BYTES and len(kept) >= LEAST_BATCHES:
            break
        kept.append(one)
    if not kept:
        raise ValueError("the data has {} samples, less than one batch of {}".format(len(dataset), batch))
    return kept


def steady_steps(framework: Framework, training: Any, batches: Sequence[Any], count: int) -> List[float]:
    """Seconds of each of `count` training steps on batches in memory, in turn, synchronised step by step."""
    return between(step_instants(framework, training, batches, count))


def step_instants(framework: Framework, training: Any, batches: Sequence[Any], count: int) -> List[int]:
    """When such steps began, and when each of them ended."""
    found = [now_ns()]
    for index in range(count):
        training.step(batches[index % len(batches)])
        framework.synchronize()
        found.append(now_ns())
    return found


def between(instants: Sequence[int]) -> List[float]:
    """Seconds between each of these instants and the next."""
    return [(instants[at + 1] - instants[at]) / 1e9 for at in range(len(instants) - 1)]


def busy(marks: Marks) -> Optional[float]:
    """Processors that this process itself, loader workers apart, kept busy since its first step, on average."""
    first = next(row for row in marks.rows if row["name"] == "first_step")
    own, seconds = resource.getrusage(resource.RUSAGE_SELF), (now_ns() - first["at_ns"]) / 1e9
    used_s = own.ru_utime + own.ru_stime - first["user_s"] - first["system_s"]
    return used_s / seconds if seconds >= LEAST_BUSY_S else None


def whole_run(spec: Mapping[str, Any], marks: Marks) -> Tuple[Framework, Dict[str, Any]]:
    """The timed run, alone or as one of a group; returns what the record holds.

    One epoch, or as many as the spec's or the workload's `epochs` says: a job of more steps. `steps` ends the first
    one early, where a whole one would take too long. `batches` makes it several (`several_runs`). `measured` adds
    training steps after the epoch, which are timed each (tare/worker/replicates.py).
    Raises Unable for `measured` in a launch that is not one run of one process.
    """
    if "measured" in spec and ("batches" in spec or spec.get("world_size", 1) > 1):
        raise frameworks.Unable("steps after the epoch are measured in a launch of one run by one process alone")
    if "batches" in spec:
        return several_runs(spec, marks)
    framework, workload = import_workload(spec, marks, spec["threads"])
    marks.watch_imports(Watch())
    grouped = spec.get("world_size", 1) > 1
    if grouped:
        framework.join(spec["rank"], spec["world_size"], spec.get("servers", 0))
        marks.add("joined")
    results, training = trained(framework, workload, spec, marks)
    if grouped:
        results.update(exchange=framework.exchanged(), weights_sha256=framework.leave(training))
    return framework, results


def trained(
    framework: Framework, workload: Any, spec: Mapping[str, Any], marks: Marks
) -> Tuple[Dict[str, Any], Any]:
    """A run from its imports on; returns (what the record holds, the trained job)."""
    dataset, training = build(framework, workload, spec, marks)
    described = description(workload, spec)
    warmup = described.get("warmup_steps", 0)
    own = len(dataset) if spec.get("samples_each") else -(-len(dataset) // framework.workers)
    last = min(-(-own // spec["batch"]), spec.get("steps") or sys.maxsize)
    epochs = spec.get("epochs", described.get("epochs", 1))
    if framework.serves:
        return served(framework, training, [last] + [-(-own // spec["batch"])] * (epochs - 1), marks), training
    waits = (warmup, last) if warmup else ()
    batches = itertools.islice(epoch(framework, dataset, spec), spec.get("steps"))
    ends, losses, samples = run_epoch(framework, training, batches, marks, waits)
    for _ in range(1, epochs):
        later = run_epoch(framework, training, epoch(framework, dataset, spec), None, waits)
        ends, losses, samples = ends + later[0], losses + later[1], samples + later[2]
    marks.add("epoch_end")
    results: Dict[str, Any] = {"samples": samples, "steps": len(ends), "step_ends_ns": ends, "losses": losses}
    if framework.device == "cpu":
        results["processors"] = busy(marks)
    if warmup:
        results.update(warmup_steps=warmup, warmup_samples=min(samples, warmup * spec["batch"]))
    if "measured" in spec:
        results.update(measured(framework, workload, spec, marks, dataset, training))
    return results, training


def measured(
    framework: Framework, workload: Any, spec: Mapping[str, Any], marks: Marks, dataset: Any, training: Any
) -> Dict[str, Any]:
    """Steps that are measured after the epoch; what the record holds of them. What the run used is noted before."""
    from tare.worker import replicates  # not before: the imports of the run are those of any other

    marks.usage = usage()
    batches = first_batches(framework, dataset, spec["batch"])
    again = partial(build_model, framework, workload, spec)
    found = replicates.measure(framework, training, again, batches, spec)
    marks.add("measured_end")
    return found


def several_runs(spec: Mapping[str, Any], marks: Marks) -> Tuple[Framework, Dict[str, Any]]:
    """Runs of several batch sizes (`batches`) after one start, each from the imports on in a separate process."""
    refuse_if_alone(frameworks.of(spec))
    framework, workload = import_workload(spec, marks, 1)  # one thread: a pool outlives no fork
    runs = [
        apart(
            partial(one_of_several, framework, workload, dict(spec, batch=batch)),
            spec["record"] + ".run",
            "{}, batch {}".format(spec["workload"], batch),
        )
        for batch in spec["batches"]
    ]
    framework.set_threads(spec["threads"])  # for the facts: those processes' number
    return framework, {"runs": runs}


def one_of_several(framework: Framework, workload: Any, spec: Mapping[str, Any]) -> Dict[str, Any]:
    """A run in a forked process: its marks, of which `entry` is the fork, its results, its memory."""
    marks = Marks(now_ns())
    marks.watch_imports(Watch())
    framework.set_threads(spec["threads"])
    results, _ = trained(framework, workload, spec, marks)
    return {"marks": marks.rows, "results": results, "memory": peak_memory()}


def served(framework: Framework, training: Any, epochs: Sequence[int], marks: Marks) -> Dict[str, Any]:
    """A parameter server's part of a run, epochs of so many steps; it trains on nothing and has no losses."""
    marks.end_watch()
    ends: List[int] = []
    for steps in epochs:
        ends += framework.serve(training, steps)
        training.end_epoch()
    marks.add("epoch_end")
    return {"samples": 0, "steps": len(ends), "step_ends_ns": ends, "losses": []}
