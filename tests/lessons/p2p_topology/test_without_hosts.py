"""Lesson 04 runs to its end where network namespaces are not allowed: from the recording."""

import nbformat
from nbclient import NotebookClient

from labkit.course.lessons import ROOT

LESSON = ROOT / "notebooks" / "04_p2p_topology.ipynb"


def test_every_cell_runs_from_the_recording(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_NO_FABRIC", "1")
    monkeypatch.setenv("LABKIT_LEDGER", str(tmp_path / "ledger.json"))
    monkeypatch.setenv("PYTHONPATH", str(LESSON.parents[1]))
    notebook = nbformat.read(LESSON, as_version=4)
    NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()  # raises at the first cell that fails
    said = {
        cell.id: "".join(output.get("text", "") for output in cell.get("outputs", []))
        for cell in notebook.cells
    }
    assert "LABKIT_NO_FABRIC" in said["start-fabric"]
    assert said["in-one-piece"].startswith("RECORDED")
