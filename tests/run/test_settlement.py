"""A reservation that nobody takes over is made after all, with what it was reserved for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airlock.evidence.revisions import load_graph
from airlock.ledger import Ledger
from airlock.owner.home import Project
from airlock.params import load_params
from airlock.run import archive, orders, reconcile
from tests.conftest import Workspace


def orphan(workspace: Workspace, place: Project) -> str:
    """Reserve a release of other parameters, as a run does that dies right afterwards."""
    before = (workspace.root / "params.yaml").read_text()
    workspace.set("release.epsilon", 0.7)
    graph, (facts, _) = load_graph(workspace.root), orders.read_facts(workspace.root)
    ledger = reconcile.open_ledger(place, public=facts.public)
    taken = orders.take_orders(
        graph.stage("relevance"),
        graph,
        params=load_params(workspace.root / "params.yaml"),
        facts=facts,
        ledger=ledger,
        workspace=workspace.root,
        project=place,
    )
    (workspace.root / "params.yaml").write_text(before)
    (order,) = (one for one in taken if one.status == "new")
    return order.release_id


def test_settle_makes_that_very_release_and_leaves_the_workspace_alone(
    finished: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Project("airlock-default", finished.home / "airlock/airlock-default")
    for name, value in finished.environment.items():
        monkeypatch.setenv(name, value)
    release_id = orphan(finished, place)
    ledger = Ledger.open(place.scratch_url, create=False)
    spent = json.loads(finished.run("airlock", "budget", "show", "--json").stdout)
    assert any(one["release_id"] == release_id for one in spent["ledgers"][0]["populations"][0]["reserved"])
    released = finished.root / "data/released/relevance/release.json"
    before = released.read_bytes(), (finished.root / "params.yaml").read_bytes()

    done = finished.run("airlock", "budget", "settle", release_id[:12])
    assert f"release {release_id[:12]}: made and committed" in done.stdout

    assert ledger.release(release_id).committed
    assert archive.holds(place.archive, release_id)
    document = json.loads((place.archive / release_id / "release.json").read_text())
    assert document["release_id"] == release_id and document["parameters"]
    assert before == (released.read_bytes(), (finished.root / "params.yaml").read_bytes())
    assert list((place.folder / "reservations").glob("*.json")) == []
    assert list(place.folder.glob("airlock-*")) == []
    assert finished.run("airlock", "budget", "verify").stdout == "every entry is in its place\n"
    again = finished.run("airlock", "budget", "settle", release_id[:12], check=False)
    assert again.returncode == 2 and "is not one open reservation" in again.stderr

    # Records that were added since are others: then it cannot be made, and says so.
    other = orphan_of_other_records(finished, place)
    refused = finished.run("airlock", "budget", "settle", other[:12], check=False)
    assert refused.returncode == 2 and "cannot be made from here" in refused.stderr
    assert not ledger.release(other).committed


def orphan_of_other_records(workspace: Workspace, place: Project) -> str:
    note = next(iter(sorted(Path(place.archive).iterdir()))).name
    ledger = Ledger.open(place.scratch_url, create=False)
    known = ledger.release(note)
    release_id = "e" * 64
    ledger.reserve(
        known.population,
        release_id=release_id,
        mechanism=known.mechanism,
        event=known.event,
        neighbours=known.neighbours,
        unit=known.unit,
        passes=known.passes,
        public=True,
    )
    params = load_params(workspace.root / "params.yaml").model_dump(mode="json")
    from airlock.run import reservations

    reservations.note(place, release_id, reservations.Purpose("release", params, {}))
    return release_id
