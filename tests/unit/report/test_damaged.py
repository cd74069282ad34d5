"""A run directory with a damaged file: named, with what to do, whatever is in the file."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from emulator.cli.main import main
from emulator.collect.store import TABLES

TEXTS = ("summary.json", "manifest.json", "events.jsonl", "raw/plan.json", "raw/ports.json")
OBJECTS = ("summary.json", "manifest.json", "raw/plan.json", "raw/ports.json")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b'{"a": '], ids=["binary", "cut"])
@pytest.mark.parametrize("file", [*TEXTS, *(f"{name}.parquet" for name in TABLES)])
def test_a_file_that_cannot_be_read(
    incast: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, content: bytes
) -> None:
    run_dir = shutil.copytree(incast, tmp_path / "run")
    (run_dir / file).write_bytes(content)
    code = main(["report", str(run_dir)])
    error = capsys.readouterr().err
    if file == "manifest.json" and code == 0:  # the page of a run needs no manifest; a comparison does
        code = main(["compare", str(run_dir), str(incast)])
        error = capsys.readouterr().err
    assert code == 2 and f"where: {run_dir / file}" in error and "to do: the file is damaged" in error


@pytest.mark.parametrize("content", ["[]", "null", "{}"])
@pytest.mark.parametrize("file", OBJECTS)
def test_a_file_with_something_else_in_it(
    incast: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, content: str
) -> None:
    run_dir = shutil.copytree(incast, tmp_path / "run")
    (run_dir / file).write_text(content)
    codes = {main(["report", str(run_dir)]), main(["compare", str(run_dir), str(incast)])}
    error = capsys.readouterr().err
    assert "internal error" not in error and codes <= {0, 2}
    if content != "{}" or file == "summary.json":
        assert 2 in codes and f"where: {run_dir / file}" in error


@pytest.mark.parametrize(("one", "other"), [("queues", "flows"), ("flows", "queues"), ("flows", "rates")])
def test_tables_that_changed_places(
    incast: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], one: str, other: str
) -> None:
    run_dir = shutil.copytree(incast, tmp_path / "run")
    shutil.copy(run_dir / f"{one}.parquet", run_dir / f"{other}.parquet")
    assert main(["report", str(run_dir)]) == 2
    assert f"where: {run_dir / other}.parquet" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["[]", "null", "{}", "3"])
def test_a_manifest_that_tells_nothing_is_not_rerun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    (tmp_path / "manifest.json").write_text(content)
    assert main(["rerun", str(tmp_path), "--out", str(tmp_path / "runs")]) == 2
    assert f"where: {tmp_path / 'manifest.json'}" in capsys.readouterr().err and not (tmp_path / "runs").exists()


def test_a_page_that_cannot_be_written(incast: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["report", str(incast), "-o", str(tmp_path / "file" / "x.html")]) == 2
    assert "where: " + str(tmp_path / "file" / "x.html") in capsys.readouterr().err


def test_a_page_on_a_full_disk(incast: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "x.html"
    page.symlink_to("/dev/full")  # no file, so written to as it is, and left there
    assert main(["report", str(incast), "-o", str(page)]) == 1
    error = capsys.readouterr().err
    assert f"where: {page}" in error and "No space left" in error and page.is_symlink()


def test_a_page_that_does_not_fit_leaves_what_was_there(
    incast: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    page = tmp_path / "page.html"
    page.write_text("the old page")

    def full(self: Path, *_args: object, **_more: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        assert main(["report", str(incast), "-o", str(page)]) == 1
        assert main(["report", str(incast), "-o", str(pipe)]) == 1
    assert "cannot write: No space left on device" in capsys.readouterr().err
    assert page.read_text() == "the old page" and pipe.is_fifo()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
