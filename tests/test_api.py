"""The Python interface: the notebook that documents it runs, in a real kernel, in a real workspace."""

from __future__ import annotations

import re
import sys

import nbformat
import pytest
from nbclient import NotebookClient

import airlock
from airlock.errors import InputError, ParamsError, StageFailed
from tests.conftest import ROOT, Workspace

WATCH = "import sys; assert not [name for name in sys.modules if name.split('.')[0] == 'stages']"


def test_the_notebook_runs_and_imports_nothing_of_the_stages(
    finished: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.read(ROOT / "docs/api.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(WATCH))
    before, spent = (finished.root / "params.yaml").read_text(), _books(finished)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(finished.root)}})
    client.execute(env={**finished.environment, "PYDEVD_DISABLE_FILE_VALIDATION": "1"})
    said = [
        "".join(output.get("text", "") or output["data"]["text/plain"] for output in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    assert "wdbc: 1 spent of 10, 1 with this; fits: True" in said[0] and "committed" in said[0]
    assert re.fullmatch(r"coefficients\S* epsilon (0\.9\d*|1) delta 1e-05 passes \d+\n", said[2])
    assert "30 columns" in said[3] and "ParamsError" in said[-2] and "epochs" in said[-2]
    after = (finished.root / "params.yaml").read_text()
    assert "ridge: 0.3 " in after and after.count("#") == before.count("#")  # comments are kept
    assert _books(finished) == spent  # training costs nothing
    for name, value in finished.environment.items():
        monkeypatch.setenv(name, value)
    _mistakes(finished)


def _books(finished: Workspace) -> str:
    return finished.run("airlock", "budget", "show", "--json").stdout


def _mistakes(finished: Workspace) -> None:
    params = (finished.root / "params.yaml").read_bytes()
    with pytest.raises(ParamsError, match="epsilon"):
        airlock.plan({"release.epsilon": -1}, workspace=finished.root)
    with pytest.raises(InputError, match="top folder"):
        airlock.release(workspace=finished.root / "data")
    with pytest.raises(StageFailed, match="cap|budget|spent|10"):
        airlock.release({"release.epsilon": 50.0}, workspace=finished.root)
    assert not airlock.plan({"release.epsilon": 50.0}, workspace=finished.root).fits
    assert (finished.root / "params.yaml").read_bytes() == params
    assert "stages" not in {name.split(".")[0] for name in vars(sys.modules["airlock"])}
