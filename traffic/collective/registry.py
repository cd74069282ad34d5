"""Every workload by name: `make_schedule("allreduce", ranks=8, size=4_000_000, algorithm="ring")`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from traffic.collective import all_to_all, halving_doubling, patterns, ring, tree
from traffic.collective.build import ELEMENT_BYTES
from traffic.collective.schedule import Schedule
from traffic.errors import TrafficError

Maker = Callable[..., Schedule]


def _makers() -> dict[str, dict[str, Maker]]:
    """Workload -> algorithm -> what makes it; the first algorithm is the default."""
    return {
        "allreduce": {
            "ring": ring.ring_allreduce,
            "tree": tree.tree_allreduce,
            "halving_doubling": halving_doubling.halving_doubling_allreduce,
        },
        "reduce_scatter": {"ring": ring.reduce_scatter},
        "all_gather": {"ring": ring.all_gather},
        "broadcast": {"chain": ring.broadcast},
        "reduce": {"chain": ring.reduce},
        "all_to_all": {"direct": _direct, "pairwise": _pairwise},
        "incast": {"incast": patterns.incast},
        "permutation": {"permutation": patterns.permutation},
        "pairs": {"pairs": patterns.pairs},
        "victim": {"victim": patterns.victim},
        "staggered": {"staggered": patterns.staggered},
    }


def _direct(ranks: int, elements: int) -> Schedule:
    return all_to_all.all_to_all(ranks, elements, "direct")


def _pairwise(ranks: int, elements: int) -> Schedule:
    return all_to_all.all_to_all(ranks, elements, "pairwise")


def _known(name: str, where: str, known: list[str]) -> None:
    if name not in known:
        near = get_close_matches(name, known, 1)
        remedy = f"did you mean {near[0]!r}? " if near else ""
        raise TrafficError(f"unknown {where} {name!r}", where=where, remedy=f"{remedy}known: {', '.join(known)}")


def kinds() -> dict[str, list[str]]:
    """Every workload with its algorithms, the default first."""
    return {kind: list(by) for kind, by in _makers().items()}


def parameters(kind: str, algorithm: str | None = None) -> dict[str, Any]:
    """The parameters of a workload and their defaults (`...` where one must be given); sizes are bytes."""
    maker = _maker(kind, algorithm)
    out = {}
    for name, parameter in inspect.signature(maker).parameters.items():
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        out["size" if name == "elements" else name] = default
    return out


def _maker(kind: str, algorithm: str | None) -> Maker:
    makers = _makers()
    _known(kind, "workload", list(makers))
    by = makers[kind]
    chosen = next(iter(by)) if algorithm is None else algorithm
    _known(chosen, "algorithm", list(by))
    return by[chosen]


def _right_type(name: str, value: object, annotation: str) -> None:
    """Raise when a parameter, perhaps from a file, is not what its maker's signature says."""
    if value is None and annotation.endswith("| None"):
        return
    if annotation.startswith("bool"):
        fits, remedy = isinstance(value, bool), "write true or false"
    elif annotation.startswith("int"):
        fits, remedy = _is_int(value), "write a whole number"
    else:
        listed = value if isinstance(value, list | tuple) else [None]
        fits = all(isinstance(p, list | tuple) and len(p) == 2 and all(map(_is_int, p)) for p in listed)
        remedy = "write pairs of ranks, such as [[0, 4], [1, 5]]"
    if not fits:
        raise TrafficError(f"{name} cannot be {value!r}", where=name, remedy=remedy)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def make_schedule(kind: str, *, algorithm: str | None = None, **params: Any) -> Schedule:
    """The schedule of a workload; `size` is bytes (the vector of a collective, one flow of a pattern).

    Raises TrafficError for a name, an algorithm or a parameter that does not exist, one that is missing, and sizes that
    are no whole number of float32 where vectors are reduced or cut.
    """
    maker = _maker(kind, algorithm)
    wanted = parameters(kind, algorithm)
    for name in params:
        _known(name, f"parameter of {kind}", list(wanted))
    missing = [name for name, default in wanted.items() if default is ... and name not in params]
    if missing:
        raise TrafficError(f"{kind} needs {', '.join(missing)}", where=kind, remedy="give each a value")
    given = dict(params)
    signature = inspect.signature(maker).parameters
    for name, value in given.items():
        _right_type(
            name, value, str(signature["elements" if name == "size" and name not in signature else name].annotation)
        )
    if "elements" in signature:
        size = int(given.pop("size"))
        if size % ELEMENT_BYTES or size < ELEMENT_BYTES:
            raise TrafficError(
                f"a vector of {size} bytes is no whole number of float32",
                where="size", remedy=f"use a multiple of {ELEMENT_BYTES}, such as {max(1, size // 4) * 4}",
            )  # fmt: skip
        given["elements"] = size // ELEMENT_BYTES
    return maker(**given)
