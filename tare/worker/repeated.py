"""Kernels that are timed again and again: how a rate is taken, whatever is called."""

from typing import Any, Callable, Dict, List, Optional, Tuple

from tare.worker.marks import now_ns

MIN_TIMED_S = 0.02


class Case(object):
    """One kernel at one size: what its row says, what a call does (bytes or FLOPs), and how to make the call."""

    def __init__(self, row: Dict[str, Any], amount: int, make: Callable[[], Callable[[], Any]]) -> None:
        self.row = row
        self.amount = amount
        self.make = make
        self.loops: Optional[int] = None
        self.rates: List[float] = []


def synchronize(torch: Any, device: str) -> None:
    """Wait for the device, so that a clock read next means something."""
    if device == "cuda":
        torch.cuda.synchronize()


def repeat_interleaved(torch: Any, device: str, cases: List[Case], repetitions: int) -> None:
    """Fill each case's `rates`: a repetition of every case, then the next; each at least MIN_TIMED_S long."""
    for _ in range(repetitions):
        for case in cases:
            operation = case.make()
            operation()
            synchronize(torch, device)
            if case.loops is None:
                case.loops = enough_loops(torch, device, operation)
            case.rates.append(case.amount * case.loops / timed(torch, device, operation, case.loops))


def enough_loops(torch: Any, device: str, operation: Callable[[], Any]) -> int:
    """Calls that take MIN_TIMED_S together."""
    loops = 1
    while True:
        elapsed = timed(torch, device, operation, loops)
        if elapsed >= MIN_TIMED_S:
            return loops
        loops = max(loops * 2, int(loops * 1.2 * MIN_TIMED_S / max(elapsed, 1e-9)))


def timed(torch: Any, device: str, operation: Callable[[], Any], loops: int) -> float:
    """Seconds for `loops` calls, device synchronised."""
    started = now_ns()
    for _ in range(loops):
        operation()
    synchronize(torch, device)
    return (now_ns() - started) / 1e9


def first_line(error: BaseException) -> str:
    """What an error says first."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def try_out(torch: Any, device: str, case: Case) -> Tuple[Optional[float], Optional[str]]:
    """Rate of one call, and no reason; or None and the reason why this framework can't do it here."""
    try:
        operation = case.make()
        operation()
        synchronize(torch, device)
        return case.amount / max(timed(torch, device, operation, 1), 1e-9), None
    except (RuntimeError, AttributeError, TypeError, ValueError) as error:
        return None, "torch {}: {}".format(torch.__version__, first_line(error))
