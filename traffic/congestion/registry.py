"""Which algorithms there are, and how one is made from a name, parameters and a preset."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final

from traffic.congestion.base import CongestionControl, Feedback, PathInfo, ReceiverControl
from traffic.congestion.cts import Cts
from traffic.congestion.dcqcn import Dcqcn
from traffic.congestion.dctcp import DctcpWindow
from traffic.congestion.fixed import Fixed
from traffic.congestion.nscc import Nscc
from traffic.congestion.params import Convert, Formula, Params, Preset, resolve
from traffic.congestion.plugin import is_plugin, load_plugin
from traffic.congestion.rccc import Rccc
from traffic.congestion.receiver import CnpReceiver
from traffic.congestion.swift import Swift
from traffic.congestion.timely import Timely
from traffic.errors import TrafficError

BUILT_IN: Final[tuple[type[CongestionControl], ...]] = (
    CongestionControl, Fixed, Dcqcn, DctcpWindow, Timely, Swift, Nscc, Rccc, Cts,
)  # fmt: skip

Algorithm = str | type[CongestionControl]
"""A built-in name, `FILE.py:Class`, or the class itself (a file is executed each time it is named: keep the class)."""


def names() -> list[str]:
    """The built-in algorithms."""
    return [cls.name for cls in BUILT_IN]


def algorithm(which: Algorithm) -> type[CongestionControl]:
    """The class of an algorithm. Raises TrafficError for a name that is none."""
    if isinstance(which, type):
        return which
    if is_plugin(which):
        return load_plugin(which)
    for cls in BUILT_IN:
        if cls.name == which:
            return cls
    near = difflib.get_close_matches(which, names(), n=1)
    hint = f"nearest is {near[0]}; known are" if near else "known are"
    raise TrafficError(
        f"unknown congestion control {which}", where="--cc", remedy=f"{hint} {', '.join(names())}, or FILE.py:Class"
    )


def find_preset(which: Algorithm, preset: str) -> Preset:
    """A preset of an algorithm by name. Raises TrafficError."""
    cls = algorithm(which)
    if preset in cls.presets:
        return cls.presets[preset]
    known = ", ".join(cls.presets) or "none"
    near = difflib.get_close_matches(preset, list(cls.presets), n=1)
    hint = f"nearest is {near[0]}; " if near else ""
    raise TrafficError(f"unknown preset {preset}", where=f"cc {cls.name}", remedy=f"{hint}{cls.name} has {known}")


def parameters(
    which: Algorithm,
    *,
    path: PathInfo,
    params: Mapping[str, Any] | None = None,
    preset: str | None = None,
    convert: Convert | None = None,
) -> Params:
    """Every parameter resolved for one path; `.values()` is what the manifest keeps, and may be given again as `params`.

    Give `params` over `preset` over defaults. Raises TrafficError naming every unknown key and bad value.
    """
    cls = algorithm(which)
    chosen = find_preset(cls, preset).values if preset else None
    return resolve(cls.parameters, params or {}, path=path, preset=chosen, where=f"cc {cls.name}", convert=convert)


def marking(which: Algorithm, preset: str, *, path: PathInfo) -> dict[str, float]:
    """kmin_bytes, kmax_bytes and pmax of the switches in a preset's source, for one line rate; empty if it has none."""
    found = find_preset(which, preset).marking
    return {key: value.compute(path, {}) if isinstance(value, Formula) else value for key, value in found.items()}


def create(
    which: Algorithm, *, path: PathInfo, params: Mapping[str, Any] | Params | None = None, preset: str | None = None
) -> CongestionControl:
    """The sender's half for one flow. A `Params` object that is already resolved is taken as it is (and is quicker)."""
    cls = algorithm(which)
    ready = params if isinstance(params, Params) else parameters(cls, path=path, params=params, preset=preset)
    return cls(path=path, params=ready)


def create_receiver(
    which: Algorithm, *, path: PathInfo, params: Mapping[str, Any] | Params | None = None, preset: str | None = None
) -> ReceiverControl:
    """The receiver's half for one receiving port: the algorithm's own, a CNP generator if it asks for CNPs, or an idle one."""
    cls = algorithm(which)
    kind = cls.receiver or (CnpReceiver if cls.feedback is Feedback.CNP else ReceiverControl)
    ready = params if isinstance(params, Params) else parameters(cls, path=path, params=params, preset=preset)
    if not isinstance(ready, kind.parameters):
        ready = resolve(kind.parameters, {}, path=path)
    return kind(path=path, params=ready)
