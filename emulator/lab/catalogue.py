"""Which labs there are: one folder each under `labs/` of the checkout, with `lab.yaml` to describe it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from emulator.errors import MissingCapability, UsageError
from emulator.topology.fields import Strict
from emulator.topology.load import load_model
from emulator.topology.suggest import nearest


class LabFile(Strict):
    """`lab.yaml`: how a lab presents itself."""

    title: str = Field(strict=True, description="Title of the handout.")
    question: str = Field(strict=True, description="The question of the lab, in one sentence.")
    minutes: int = Field(strict=True, ge=1, description="Time it takes a student.")


@dataclass(frozen=True)
class Lab:
    """One lab: its number, its folder's name, where it is, and what `lab.yaml` says."""

    number: int
    name: str
    folder: Path
    about: LabFile

    @property
    def solution(self) -> Path:
        """The folder of its solution, which `start` never copies."""
        return self.folder.parent / "solutions" / self.name


def labs_dir() -> Path:
    """The folder of the labs. Raises MissingCapability where fabriclab was installed without its checkout."""
    folder = Path(__file__).resolve().parents[2] / "labs"
    if not folder.is_dir():
        raise MissingCapability(
            "the labs are not here", where=str(folder), remedy="they come with the checkout: use its scripts/fabriclab"
        )
    return folder


def labs() -> list[Lab]:
    """All labs in order of their number."""
    found = []
    for file in sorted(labs_dir().glob("[0-9]*/lab.yaml")):
        about = load_model(LabFile, file, kind="lab")
        found.append(Lab(int(file.parent.name.partition("-")[0]), file.parent.name, file.parent, about))
    return sorted(found, key=lambda lab: lab.number)


def find_lab(which: str) -> Lab:
    """The lab of a number (`3`, `03`) or a name (`03-incast`). Raises UsageError with the ones there are."""
    known = labs()
    for lab in known:
        if which == lab.name or (which.isdecimal() and int(which) == lab.number):
            return lab
    names = [lab.name for lab in known]
    raise UsageError(f'there is no lab "{which}"', where="lab", remedy=nearest(which, names, most=len(names)))
