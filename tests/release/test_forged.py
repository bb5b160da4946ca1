"""A release stage builds on releases that the ledger committed, and on no others that look like them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from airlock.errors import ReleaseError
from airlock.evidence.revisions import load_graph
from airlock.inside import manifest
from airlock.inside.digests import sha256_path
from airlock.owner.home import Project
from airlock.params import Params, load_params
from airlock.privacy import noise
from airlock.run import orders, reconcile
from airlock.storage import load_tensors, save_tensors
from stages.mechanisms import mechanism
from tests.conftest import Workspace
from tests.support.sealed_records import KEY, facts, seal, table


def forge(folder: Path) -> None:
    """Change one released number, and what release.json says of its file."""
    (file,) = folder.glob("*.safetensors")
    tensors = load_tensors(file)
    tensors["mean"][0] += 1
    save_tensors(file, tensors)
    document = json.loads((folder / manifest.NAME).read_text())
    document["files"][file.name] = sha256_path(file)
    (folder / manifest.NAME).write_text(json.dumps(document))


def test_a_forged_relevance_release_is_not_built_on(
    finished: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Project("airlock-default", finished.home / "airlock/airlock-default")
    for name, value in finished.environment.items():
        monkeypatch.setenv(name, value)
    finished.set("release.options", {"gram_share": 0.3})
    graph, (known, _) = load_graph(finished.root), orders.read_facts(finished.root)
    ledger = reconcile.open_ledger(place, public=known.public)
    before = len(ledger.history())

    def taken() -> list[str]:
        params = load_params(finished.root / "params.yaml")
        made = orders.take_orders(
            graph.stage("release"), graph, params=params, facts=known, ledger=ledger,
            workspace=finished.root, project=place,
        )  # fmt: skip
        return [order.status for order in made]

    relevance = finished.root / "data/released/relevance"
    forge(relevance)
    assert manifest.load(relevance).applies, "by itself it is a release like any other"
    with pytest.raises(ReleaseError, match="dvc repro -f relevance"):
        taken()
    assert len(ledger.history()) == before, "nothing was reserved"

    # The control: nothing else would have noticed.
    with monkeypatch.context() as patch:
        patch.setattr(orders, "check_upstream", lambda *given, **named: None)
        assert "new" in taken()


def test_one_relevance_for_all_inputs_does_not_give_them_one_noise(tmp_path: Path) -> None:
    """Why it matters: `adlm` gave a forged relevance of one number to all columns, with one noise, and the
    differences of a record's inputs left as they are.
    """
    x, y = table(20, 4, 3)
    params = Params.model_validate({"release": {"mechanism": "adlm"}})
    given = {"key": KEY, "release_id": "a", "relevance": ({"relevance": np.array([7])}, {})}
    with seal(tmp_path, x, y) as reader, pytest.raises(ReleaseError, match="of other parameters"):
        mechanism("adlm").make(params, facts(x, 3), reader, **given)
    exact, one = np.arange(80).reshape(20, 4), np.array([16.0])
    named: dict[str, Any] = {"key": KEY, "release_id": "a", "release_pass": 1, "purpose": "inputs"}
    with pytest.raises(ValueError, match="a scale for each"):
        noise.add_laplace_by_column(exact, scales=one, **named)
    # The control: what NumPy makes of it.
    stream = noise.Stream(**named, statistic=bytes(32))
    noisy = exact + noise.laplace_by_column(stream, one, len(exact))
    assert np.array_equal(np.diff(noisy, axis=1), np.diff(exact, axis=1))
