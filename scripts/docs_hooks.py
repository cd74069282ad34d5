"""Hooks of the site: the labs' handouts are pages of it, though they live with their labs; the nav takes in what is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
OPTIONAL = {"How to": "howto", "Decisions": "decisions", "Results": "results"}


def on_config(config: Any) -> Any:
    """Puts the labs, and pages of some folders that the nav does not name, into the nav; takes out results that are not all made."""
    named = set(re.findall(r"[\w/-]+\.md", str(config.nav)))
    if not results_are_whole():
        config.nav = [section for section in config.nav if "Results" not in section]
    _extend(config.nav, named)
    return config


def _extend(sections: list[Any], named: set[str]) -> None:
    for section in sections:
        for title, pages in section.items() if isinstance(section, dict) else ():
            if title == "Labs":
                section[title] = ["labs/index.md", *(f"labs/{lab}.md" for lab in labs())]
            if not isinstance(pages, list):
                continue
            _extend(pages, named)
            if title in OPTIONAL:
                found = sorted(
                    p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs" / OPTIONAL[title]).glob("*.md")
                )
                pages.extend(page for page in found if page not in named)


def results_are_whole() -> bool:
    """Whether every page that the results' first page links to has been made."""
    index = ROOT / "docs" / "results" / "index.md"
    if not index.is_file():
        return False
    links = re.findall(r"\]\(([\w-]+\.md)\)", index.read_text(encoding="utf-8"))
    return all((index.parent / link).is_file() for link in links)


def labs() -> list[str]:
    """The labs' folders."""
    return sorted(path.parent.name for path in (ROOT / "labs").glob("[0-9]*/handout.md"))


def on_files(files: Files, config: Any) -> Files:
    """Adds a page for each handout and one that lists them."""
    if not results_are_whole():
        for file in [file for file in files if file.src_uri.startswith("results/")]:
            files.remove(file)
    lines = ["# Labs\n", "Each is started with `fabriclab lab start N` and graded with `fabriclab lab check N`.\n"]
    for lab in labs():
        text = (ROOT / "labs" / lab / "handout.md").read_text(encoding="utf-8")
        text = text.replace("](../../docs/", "](../")
        files.append(File.generated(config, f"labs/{lab}.md", content=text))
        title = text.partition("\n")[0].removeprefix("# ")
        question = re.search(r"\*\*Question\.\*\* (.*)", text)
        lines.append(f"* [{title}]({lab}.md): {question[1] if question else ''}")
    files.append(File.generated(config, "labs/index.md", content="\n".join(lines) + "\n"))
    return files
