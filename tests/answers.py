"""Parts of answers of `tare weigh` that several tests have."""

from tare.weigh.answer import CauseFound, Ratio
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
