"""What a document or a command says about an algorithm, taken from the class that runs."""

from __future__ import annotations

import inspect
from typing import Any

from traffic.congestion.base import CongestionControl, Feedback
from traffic.congestion.params import Formula, Params

TABLE_START = "<!-- parameters: written by `fabriclab cc show NAME --markdown` -->"
TABLE_END = "<!-- end of parameters -->"

_FEEDBACK = {
    Feedback.NONE: "nothing",
    Feedback.CNP: "congestion notification packets from the receiver",
    Feedback.ACK: "an acknowledgement with ECN echo for every packet",
    Feedback.CREDIT: "credit from the receiver",
}


def summary(cls: type[CongestionControl]) -> str:
    """One sentence: the first line of the module that explains the algorithm, or of the class."""
    module = inspect.getmodule(cls)
    of_module = formula(cls) and not cls.formula and cls is not CongestionControl
    doc = inspect.getdoc(module) if of_module or not cls.__dict__.get("__doc__") else inspect.getdoc(cls)
    return (doc or "no description").split("\n\n")[0].replace("\n", " ")


def needs(cls: type[CongestionControl]) -> str:
    """What the algorithm needs to hear."""
    return _FEEDBACK[cls.feedback]


def formula(cls: type[CongestionControl]) -> str:
    """The rule in formulas: the class's own, or the body of its module's docstring."""
    if cls is CongestionControl:
        return "rate = line rate"
    if cls.formula:
        return cls.formula
    module = inspect.getmodule(cls)
    return (inspect.getdoc(module) or "").partition("\n\n")[2].strip() if module else ""


def rows(cls: type[CongestionControl], *, params: Params | None = None) -> list[dict[str, Any]]:
    """One dictionary a parameter: name, default, value (if resolved), unit, range, meaning, source."""
    values = params.values() if params is not None else {}
    return [
        {
            "name": p.name,
            "default": p.default_text,
            "value": values.get(p.name, "" if isinstance(p.default, Formula) else p.default),
            "unit": p.unit,
            "range": p.range_text,
            "meaning": p.text,
            "source": p.source,
        }
        for p in cls.parameters.declared()
    ]


def markdown(cls: type[CongestionControl]) -> str:
    """The table of parameters and presets for the algorithm's page, between its two marks."""
    lines = [TABLE_START, ""]
    table = rows(cls)
    if table:
        lines += ["| parameter | default | unit | range | meaning | source |", "|---|---|---|---|---|---|"]
        for row in table:
            cells = (f"`{row['name']}`", row["default"], row["unit"], row["range"], row["meaning"], row["source"])
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    else:
        lines.append("No parameters.")
    if cls.presets:
        lines += ["", "| preset | is | values | source |", "|---|---|---|---|"]
        for name, preset in cls.presets.items():
            values = ", ".join(f"`{k}` {_text(v)}" for k, v in preset.values.items()) or "the defaults"
            marks = ", ".join(f"{k} {_text(v)}" for k, v in preset.marking.items())
            values += f"; its switches mark with {marks}" if marks else ""
            lines.append(f"| `{name}` | {preset.text} | {values} | {preset.source} |")
    return "\n".join([*lines, "", TABLE_END])


def _text(value: Any) -> str:
    if isinstance(value, Formula):
        return value.text
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}" if value < 1e6 else f"{value:.0f}"
    return str(value)
