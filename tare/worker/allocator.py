"""glibc's allocator, kept from giving memory back, in a process that lives already.

`MALLOC_MMAP_THRESHOLD_` and its kin do so from a process's start; `mallopt` does the same to a fork of one that
began with the allocator as it is, so that one launch serves jobs at both levels.
"""

import ctypes
from typing import Mapping, Optional

DEFAULT, STEADY = "default", "steady"
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h
OPTIONS = ((M_TRIM_THRESHOLD, -1), (M_TOP_PAD, 64 << 20), (M_MMAP_THRESHOLD, 1 << 30))


def use(level: Optional[str]) -> None:
    """Put this process's allocator at a level; only `steady` does something. OSError where it can't be set."""
    if level != STEADY:
        return
    lacking = why_not_steady()
    if lacking is not None:
        raise OSError(lacking)
    mallopt = ctypes.CDLL(None).mallopt
    for option, value in OPTIONS:
        if not mallopt(option, value):
            raise OSError("mallopt refused option {} = {}".format(option, value))


def give_back() -> None:
    """Give the heap's free pages back to the kernel, where the C library can.

    For a fork of a process that has trained: pages that it took from there would be copied one by one in its steps,
    and which they are differs from process to process. What it takes after this is new.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def why_not_steady() -> Optional[str]:
    """Why the allocator of this process can't be kept from giving memory back; None where it can."""
    if getattr(ctypes.CDLL(None), "mallopt", None) is None:
        return "this C library has no mallopt, so its allocator can't be kept from giving memory back"
    return None


def why_not_default(variables: Mapping[str, str]) -> Optional[str]:
    """Why a process with these variables has not the allocator as the C library makes it; None where it has."""
    names = sorted(
        name
        for name, value in variables.items()
        if name.startswith("MALLOC_") or (name == "GLIBC_TUNABLES" and "glibc.malloc" in value)
    )
    return (
        "the launch's allocator was set otherwise from its start by {}".format(", ".join(names)) if names else None
    )
