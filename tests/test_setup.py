"""`make setup` before anything is installed: what it says about downloads, and what it shows while pip works."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import ROOT


@pytest.fixture
def setup() -> ModuleType:
    spec = importlib.util.spec_from_file_location("setup_script", ROOT / ".ci/setup.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def package(name: str, file: Path) -> dict[str, Any]:
    return {"metadata": {"name": name}, "download_info": {"url": file.as_uri()}}


def test_cuda_without_a_gpu_is_told_with_its_size_and_the_way_out(
    setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, size in (("torch.whl", 3_000_000), ("nvidia-cudnn.whl", 9_000_000)):
        (tmp_path / name).write_bytes(bytes(size))
    found = [package("torch", tmp_path / "torch.whl"), package("nvidia-cudnn", tmp_path / "nvidia-cudnn.whl")]
    ran: list[list[str]] = []
    monkeypatch.setattr(setup, "planned", lambda *_: found)
    monkeypatch.setattr(setup, "run", lambda python, arguments: ran.append(list(arguments)) or 0)
    monkeypatch.setattr(setup, "gpu", lambda: False)
    assert setup.main("python", "") == 0
    said = capsys.readouterr().out
    assert (
        "2 packages, 12 MB to download" in said and "1 of them are CUDA" in said and "TORCH_INDEX=URL" in said
    )
    monkeypatch.setattr(setup, "gpu", lambda: True)
    setup.main("python", "")
    assert "CUDA" not in capsys.readouterr().out
    setup.main("python", "https://example.org/cpu")
    assert ran[-2] == ["-c", "constraints.txt", "--index-url", "https://example.org/cpu", setup.TORCH]
    assert ran[-1][-1] == setup.EXTRAS


def test_pip_is_really_asked_and_its_work_is_shown(
    setup: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A package of one file, from a folder: no index is asked."""
    (tmp_path / "one").mkdir()
    (tmp_path / "one/pyproject.toml").write_text('[project]\nname = "one-file"\nversion = "1"\n')
    place = ["--no-build-isolation", "--no-index", "--target", str(tmp_path / "into"), str(tmp_path / "one")]
    assert setup.run(sys.executable, place) == 0
    assert "Installing collected packages: one-file" in capfd.readouterr().out
    assert setup.run(sys.executable, ["--no-index", "no-such-package-at-all"]) != 0
    assert "no-such-package-at-all" in capfd.readouterr().out
