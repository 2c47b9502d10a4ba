"""Parts of answers of `tare weigh` that several tests have."""

from tare.weigh.answer import Answer, CauseFound, Ratio, Seconds, Weighed
from tare.weigh.causes import Evidence

LIBRARY = CauseFound(
    cause="library build",
    title="a different build of a numerical library",
    finding="confirmed",
    evidence=(Evidence(what="kernels of OpenBLAS", reference="SkylakeX", value="Haswell"),),
    change="OPENBLAS_CORETYPE=SkylakeX",
    gained=Ratio(ratio=0.951, low=0.946, high=0.956, rounds=6),
    share=0.86,
    advice="set OPENBLAS_CORETYPE=SkylakeX",
)
SLOW = Weighed(
    name="an-image-with-a-long-name",
    text="docker=b",
    status="weighed",
    verdict="different",
    run=Ratio(ratio=1.06, low=1.055, high=1.066, rounds=8),
    parts={"start": Seconds(seconds=0.21, low=0.19, high=0.23)},
    step=Ratio(ratio=1.059, low=1.054, high=1.064, rounds=8),
    causes=(
        LIBRARY,
        CauseFound(cause="seccomp", title="a filter", finding="not tried", reason="needs root"),
    ),
)
EQUAL = Weighed(
    name="docker",
    text="docker=a",
    status="weighed",
    verdict="equivalent",
    run=Ratio(ratio=1.001, low=0.996, high=1.006, rounds=8),
    parts={"start": Seconds(seconds=0.0, low=-0.01, high=0.01)},
    steps_reason="the job runs no Python",
)
GONE = Weighed(name="gone", text="docker=c", status="unavailable", reason="there is no image c")
ANSWER = Answer(
    tare="1",
    at="2026-01-01T00:00:00Z",
    command=("python", "train.py"),
    workdir="/w",
    machine="a processor",
    confidence=0.95,
    margin=0.02,
    rounds=8,
    minutes=4.9,
    budget_minutes=5,
    reference="host",
    reference_text="host",
    reference_s={"start": 0.02, "body": 12.3, "exit": 0.1},
    step_s=0.031,
    steps="SGD 1",
    control=Ratio(ratio=1.001, low=0.996, high=1.006, rounds=8),
    environments=(EQUAL, SLOW, GONE),
)
