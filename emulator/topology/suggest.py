"""The nearest known name, for messages about an unknown one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str], *, most: int = 12) -> str:
    """The remedy for an unknown name: the one it resembles, else the known ones (a long list is cut)."""
    names = list(known)
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f'did you mean "{close[0]}"?'
    listed = ", ".join(names[:most]) + (", ..." if len(names) > most else "")
    return f"known: {listed}" if names else "there are none"
