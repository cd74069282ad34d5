"""Starting a lab: a folder of one's own with the handout, the experiment files and what is to be filled in."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from emulator.errors import UsageError
from emulator.lab.catalogue import Lab

_KEPT = ("lab.yaml", "check.py", "starter", "__pycache__")
_GLOSSARY = "../../docs/glossary.md"


def start_lab(lab: Lab, folder: Path) -> list[Path]:
    """Copies the lab into `folder`, which must be new or empty; what was copied. Links to the glossary go to a copy of it.

    The copied handout leaves out the commands that make the folder: typed again there, they would make one inside it.
    Raises UsageError if the folder has something in it, or cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError("there is something there already", where=str(folder), remedy="choose another --dir")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for entry in sorted(lab.folder.iterdir()):
            if entry.name not in _KEPT:
                _copy(entry, folder / entry.name)
        for entry in sorted((lab.folder / "starter").iterdir()):
            if entry.name not in _KEPT:
                _copy(entry, folder / entry.name)
        handout = folder / "handout.md"
        handout.write_text(_without_start(_own_links(handout.read_text(encoding="utf-8"))), encoding="utf-8")
        glossary = (lab.folder / _GLOSSARY).resolve()
        if glossary.is_file():
            (folder / "glossary.md").write_text(_own_links(glossary.read_text(encoding="utf-8")), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"the lab cannot be copied: {error.strerror}", where=str(folder), remedy="choose another --dir"
        ) from error
    return sorted(folder.iterdir())


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)


def _without_start(text: str) -> str:
    text = re.sub(r"^(?:fabriclab lab start \d+|cd lab-[\w-]+)\n", "", text, flags=re.MULTILINE)
    return text.replace("```bash\n```\n\n", "")


def _own_links(text: str) -> str:
    """Links to the glossary lead to the copy beside the handout; those to other pages of the site keep their words only."""
    text = text.replace(f"]({_GLOSSARY}", "](glossary.md")
    return re.sub(r"\[([^\]]+)\]\((?!https?:|#|glossary\.md)[^)]*\.md(?:#[^)]*)?\)", r"\1", text)
