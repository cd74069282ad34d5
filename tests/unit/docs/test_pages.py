"""The site builds without a warning, generated pages are up to date, and every abbreviation stands in the glossary."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import ROOT, commands_of

DOCS = ROOT / "docs"
HANDOUTS = sorted((ROOT / "labs").glob("[0-9]*/handout.md"))
PAGES = sorted(path for path in DOCS.rglob("*.md") if "results" not in path.parts)
FOR_BEGINNERS = [
    DOCS / "index.md",
    DOCS / "start.md",
    *sorted((DOCS / "concepts").glob("*.md")),
    *sorted((DOCS / "howto").glob("*.md")),
]
GLOSSARY = (DOCS / "glossary.md").read_text(encoding="utf-8")

ABBREVIATION = re.compile(
    r"(?<![\w./:-])(?![FC]\d)(?:[A-Z][A-Z0-9]+[a-z]?|RoCE|SRv6|InfiniBand|IPv[46])(?![\w-]|\.\w|://)"
)
NO_ABBREVIATIONS = {
    "K", "KB", "MB", "GB", "OK", "T0", "T1", "NO",  # units, and names of tiers
    "III", "II", "IEEE", "RFC", "SIGCOMM", "EuroSys", "NSDI", "ACM", "PM",  # whom sources are cited by
    "ConnectX", "CPUs", "NVIDIA", "GPL",
    "FILE", "DIR", "NAME", "PORT", "RUN", "NUMBER", "N", "TOPO", "SPEC", "VERDICT",  # stand-ins in commands
}  # fmt: skip


def prose(text: str) -> str:
    """A page without code, links' targets and comments."""
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "", text)
    return re.sub(r"\]\([^)]*\)", "]", text)


def headings() -> set[str]:
    return set(re.findall(r"^#+ (.+)$", GLOSSARY, re.MULTILINE))


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Strict: a link or an anchor that leads nowhere, or a page that no menu names, is an error."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    for lab in HANDOUTS:
        assert (tmp_path / "site" / "labs" / lab.parent.name / "index.html").is_file()
    assert not re.search(
        r'(?:src|href)="https?://(?:fonts|cdn)', (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    )


def test_reference_pages_are_up_to_date() -> None:
    """`scripts/gen-docs` writes them anew. A process of its own: click keeps the help option of a command's first use."""
    done = subprocess.run(
        [sys.executable, "scripts/gen_docs.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_key_of_the_models_has_a_meaning_and_an_example() -> None:
    rows = [
        line.split(" | ")
        for page in ("topology", "experiment")
        for line in (DOCS / "reference" / f"{page}.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| `") and line.count(" | ") == 5
    ]
    assert len(rows) > 60
    assert [row[0] for row in rows if not row[5].strip(" |")] == []
    assert [row[0] for row in rows if not row[4].strip()] == []


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES, *HANDOUTS], ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_abbreviation_is_in_the_glossary(page: Path) -> None:
    known = {word for heading in headings() for word in re.findall(r"[\w-]+", heading)}
    explained = set(ABBREVIATION.findall(prose(GLOSSARY)))
    found = set(ABBREVIATION.findall(prose(page.read_text(encoding="utf-8"))))
    missing = {
        word
        for word in found
        if word not in known | explained | NO_ABBREVIATIONS and word.rstrip("s") not in known | explained
    }
    assert missing == set()


def test_every_abbreviation_of_the_glossary_comes_with_its_words() -> None:
    """An entry that is all capitals begins with what they stand for: a capital of it, at least, begins the text."""
    entries = re.findall(r"^### (.+)\n\n(.+)$", GLOSSARY, re.MULTILINE)
    assert len(entries) > 100
    odd = {"TIMELY", "NDP", "WRITE", "ECT"}
    for term, text in entries:
        if re.fullmatch(r"[A-Z0-9]{2,}", term) and term not in odd:
            initials = "".join(word[0] for word in re.findall(r"[A-Za-z0-9]+", text.partition(":")[0]))
            letters = iter(initials.lower())
            found = sum(letter in letters for letter in term.lower().replace("2", ""))
            assert found >= len(term) - 3, f"{term}: {text}"


@pytest.mark.parametrize("page", [*FOR_BEGINNERS, *HANDOUTS], ids=lambda p: p.relative_to(ROOT).as_posix())
def test_no_abbreviation_before_its_meaning(page: Path) -> None:
    """Where a page for beginners first uses an abbreviation it links to the glossary, or says the words beside it."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^#.*$|<!--.*?-->|`[^`\n]*`", "", text, flags=re.MULTILINE)
    linked = [(m.start(), m.end()) for m in re.finditer(r"!?\[[^\]]*\]\([^)]*\)", text)]
    seen: set[str] = set()
    for match in ABBREVIATION.finditer(text):
        word = match[0].rstrip("s")
        if word in seen or word in NO_ABBREVIATIONS:
            continue
        seen.add(word)
        inside = any(a <= match.start() < b for a, b in linked)
        beside = (
            re.match(r"(?:s|\]\([^)]*\))? \((?!i\.e)[a-zA-Z]", text[match.end() :]) or text[match.start() - 1] == "("
        )
        assert inside or beside, f"{word}: {text[max(0, match.start() - 60) : match.end() + 30]!r}"


def test_commands_that_do_not_run_in_ci_are_few_and_say_why() -> None:
    pages = [ROOT / "README.md", *PAGES, *HANDOUTS]
    commands = [command for page in pages for command in commands_of(page)]
    left_out = [command for command in commands if command.no_ci]
    assert len(commands) > 60
    assert len(left_out) <= 3, left_out
    assert all(len(command.no_ci) > 8 for command in left_out)


def test_the_extraction_sees_what_a_reader_would_type(tmp_path: Path) -> None:
    page = ROOT / "docs" / "howto" / "capture.md"
    texts = [command.text for command in commands_of(page)]
    assert texts[0].startswith("fabriclab incast") and texts[0].endswith("--out runs/p")
    assert [c.no_ci for c in commands_of(page) if c.text.startswith("fabriclab capture open")] == ["opens a window"]


def test_no_command_hides_in_a_block_of_another_kind() -> None:
    """Only ```bash and ```console blocks run in CI; a line that begins like a command of ours belongs into one."""
    for page in [ROOT / "README.md", *PAGES, *HANDOUTS]:
        for language, body in re.findall(
            r"^ *```(\w*)\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        ):
            if language not in ("bash", "console"):
                assert not re.search(r"^\s*(?:\$ )?(?:scripts/)?fabriclab \w", body, re.MULTILINE), (
                    f"{page.name}: {body[:80]}"
                )
