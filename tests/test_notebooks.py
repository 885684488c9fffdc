"""Every notebook runs from top to bottom, with the shorter settings that `HC_LENS_NOTEBOOK_QUICK` asks for."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HC_LENS_NOTEBOOK_QUICK", "1")
    monkeypatch.setenv("HC_LENS_NOTEBOOK_RUNS", str(tmp_path))
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "commit notebooks without outputs"
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    figures = sum("application/vnd.plotly.v1+json" in str(cell.get("outputs", "")) for cell in notebook.cells)
    assert figures == 4


def test_there_are_notebooks():
    assert [path.stem for path in NOTEBOOKS] == ["quickstart"]
