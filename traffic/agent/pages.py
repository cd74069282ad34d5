"""Memory made before it is needed: a page that the kernel first makes when a packet lands in it costs more than the packet."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable

from traffic.collective.reduce import Memory

_MADV_POPULATE_WRITE = 23
"""Linux 5.14; an older kernel refuses it, and the pages are made one by one as before."""


def populate(memory: Memory, ranges: Iterable[tuple[int, int]]) -> None:
    """Have the kernel make the pages of the (start, end) byte ranges of `memory`, all at once."""
    libc = ctypes.CDLL(None)
    base = memory.ctypes.data
    for start, end in ranges:
        low = (base + start) // mmap.PAGESIZE * mmap.PAGESIZE
        libc.madvise(ctypes.c_void_p(low), ctypes.c_size_t(base + end - low), _MADV_POPULATE_WRITE)
