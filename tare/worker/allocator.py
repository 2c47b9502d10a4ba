"""glibc's allocator, kept from giving memory back, in a process that lives already.

`MALLOC_MMAP_THRESHOLD_` and its kin do so from a process's start; `mallopt` does the same to a fork of one that
began with the allocator as it is, so that one launch serves jobs at both levels.
"""

import ctypes
from typing import Optional

STEADY = "steady"
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h
OPTIONS = ((M_TRIM_THRESHOLD, -1), (M_TOP_PAD, 64 << 20), (M_MMAP_THRESHOLD, 1 << 30))


def use(level: Optional[str]) -> None:
    """Put the level of this process's allocator in place; nothing but `steady` changes anything.

    Raises:
        OSError: the C library can't be told.
    """
    if level != STEADY:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        raise OSError("this C library has no mallopt, so its allocator can't be kept from giving memory back")
    for option, value in OPTIONS:
        if not mallopt(option, value):
            raise OSError("mallopt refused option {} = {}".format(option, value))
