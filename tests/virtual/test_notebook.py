"""The Python interface, and the example notebook from the first cell to the last."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import emulator
from emulator.errors import UsageError
from emulator.experiment.spec import Experiment
from tests.experiments import ROOT, TOPOLOGIES

NOTEBOOK = ROOT / "examples" / "first-look.ipynb"
SPEC = {
    "topology": str(TOPOLOGIES / "leaf-spine-2x2x4.yaml"),
    "workload": {"kind": "incast", "bytes": "100kB", "params": {"senders": 3}},
    "clock": "virtual",
}


@pytest.mark.virtual
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    shutil.copytree(TOPOLOGIES, tmp_path / "topologies")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(tmp_path / "examples")}}
    NotebookClient(notebook, timeout=200, kernel_name="python3", resources=resources).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output]
    texts = [output["data"].get("text/plain", "") for output in shown]
    page = shown[0]["data"]["text/html"]
    assert "VERDICT:" in page and "virtual clock" in page and "TDF 1" in page and "seed 1" in page
    assert "('trusted'" in texts[1] and "leaf0" not in texts[2] and "host7" in texts[2]
    figures = [
        output["data"]["application/vnd.plotly.v1+json"]
        for output in shown
        if "application/vnd.plotly.v1+json" in output["data"]
    ]
    assert len(figures) == 3 and all(figure["data"] for figure in figures)
    assert all(
        any("virtual clock · TDF 1 · seed 1" in a["text"] for a in figure["layout"]["annotations"])
        for figure in figures
    )
    assert texts[-1] == "True"


def test_the_notebook_is_kept_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.outputs and cell.execution_count is None for cell in notebook.cells if cell.cell_type == "code")


@pytest.mark.virtual
def test_a_dict_a_file_and_an_experiment_are_the_same_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from emulator.experiment.load import save_experiment

    file = tmp_path / "incast.yaml"
    save_experiment(Experiment.model_validate(SPEC), file)
    runs = [
        emulator.run(spec, out=tmp_path / "runs", quiet=True) for spec in (SPEC, file, Experiment.model_validate(SPEC))
    ]
    assert capsys.readouterr().err == ""
    assert len(runs[0].flows) == 3 and runs[0].verdict["word"] == "trusted" and runs[0].capture is None
    assert all(run.flows.equals(runs[0].flows) and run.queues.equals(runs[0].queues) for run in runs[1:])
    assert emulator.load(runs[0].path).summary == runs[0].summary


def test_wrong_keys_are_all_named() -> None:
    with pytest.raises(UsageError) as caught:
        emulator.run({"topology": "x", "workload": {"kind": "incast", "bytes": "10 Kbps"}, "clok": "virtual"})
    assert "workload.bytes" in caught.value.what and "clok" in caught.value.what
    with pytest.raises(UsageError, match="no such folder"):
        emulator.load("nowhere")


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys, emulator; print([m for m in ('pydantic', 'numpy', 'pandas', 'plotly', 'click') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"
