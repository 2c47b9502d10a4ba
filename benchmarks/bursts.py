"""What the harness adds to a training step: bursts of a bare loop against bursts of `take_turn`, in one process.

    python bursts.py CODE SPEC       (benchmarks/harness.py runs it with a stack's interpreter; prints JSON)

Standard library and framework only, as all that runs inside. CODE is the folder of the staged code; SPEC is JSON
with workload, batch, data, device, seed, threads, cpus, steps (of a burst) and pairs. Each pair is one burst of
either kind on the same batches, in random order; clocks are read around both alike.
"""

import json
import os
import random
import sys
import time


def timed(steps, work):
    """Seconds per step of a burst: [on the clock, of this process's CPU time]."""
    started, used = time.perf_counter(), time.process_time()
    work()
    return [(time.perf_counter() - started) / steps, (time.process_time() - used) / steps]


def main(code, spec):
    """Seconds per step of every pair: {"bare": [wall, cpu], "harness": [wall, cpu]}."""
    sys.path[0] = code
    from tare.worker.turns import take_turn

    from tare.worker.marks import Marks, now_ns
    from tare.worker.train import build_model, import_workload, load_batches

    os.sched_setaffinity(0, spec["cpus"])
    marks = Marks(now_ns())
    framework, workload = import_workload(spec, marks, spec["threads"])
    loaded = load_batches(framework, workload, spec, marks)[: spec["steps"]]
    batches = [framework.to_device(batch) for batch in loaded]
    training = build_model(framework, workload, spec)

    def bare():
        for batch in batches:
            training.step(batch)

    def harness():
        take_turn(framework, training, batches, 0, 0, len(batches))

    bursts = {"bare": bare, "harness": harness}
    for _ in range(5):  # the heap grows for some ten steps
        bare()
        harness()
    order = random.Random(spec["seed"])
    pairs = []
    for _ in range(spec["pairs"]):
        names = order.sample(sorted(bursts), 2)
        pairs.append({name: timed(len(batches), bursts[name]) for name in names})
    return {"pairs": pairs, "steps": len(batches)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], json.loads(sys.argv[2]))))
