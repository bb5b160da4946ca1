"""`airlock audit` says who could read records and who did, and finds what was made around the runner."""

from __future__ import annotations

import json

from tests.conftest import Workspace


def audit(workspace: Workspace, *options: str) -> tuple[int, dict]:
    done = workspace.run("airlock", "audit", "--json", *options, check=False)
    return done.returncode, json.loads(done.stdout)


def rows(answer: dict) -> dict[str, dict]:
    return {row["name"]: row for row in answer["stages"]}


def test_it_answers_for_every_stage(finished: Workspace) -> None:
    code, answer = audit(finished)
    assert code == 0 and answer["holds"] and answer["problems"] == []
    found = rows(answer)
    keys = {
        "name",
        "zone",
        "could_read_raw",
        "could_read_sealed",
        "did_read_records",
        "passes",
        "enforcement",
        "releases",
    }
    assert all(keys <= row.keys() for row in answer["stages"])
    assert (
        found["ingest"]["could_read_raw"],
        found["ingest"]["did_read_records"],
        found["ingest"]["passes"],
    ) == (True, "yes", 1)
    assert (found["release"]["could_read_raw"], found["release"]["could_read_sealed"]) == (False, True)
    assert found["release"]["releases"][0]["proven"]["epsilon"] <= 1.0 and found["release"]["passes"] >= 1
    for name in ("train", "evaluate", "report"):
        assert (found[name]["could_read_raw"], found[name]["could_read_sealed"]) == (False, False)
        assert found[name]["did_read_records"] in ("no", "unknown")


def test_a_commit_can_be_audited_without_checking_it_out(finished: Workspace) -> None:
    before = finished.run("git", "rev-parse", "HEAD").stdout.strip()
    finished.edit("dvc.yaml", "meta: {zone: open}", "meta: {}")
    finished.commit("Break the zones")
    assert audit(finished, "--rev", before)[0] == 0
    code, answer = audit(finished, "--rev", "HEAD")
    assert code == 1 and any("'train' has no zone" in line for line in answer["problems"])
    assert finished.run("airlock", "audit", "--rev", "nowhere", check=False).returncode == 2


def test_an_artifact_made_around_the_runner_is_found(finished: Workspace) -> None:
    metrics = finished.root / "data/metrics/evaluate.json"
    metrics.write_text(metrics.read_text().replace('"holdout"', '"Holdout"'))
    finished.run("dvc", "commit", "-f", "evaluate")
    code, answer = audit(finished)
    assert code == 1 and any(
        "'evaluate'" in line and "outside the runner" in line for line in answer["problems"]
    )


def test_an_edited_or_removed_receipt_is_found(finished: Workspace) -> None:
    receipt = next((finished.root / "receipts/train").glob("*.json"))
    text = receipt.read_text()
    receipt.write_text(text.replace('"sealed": false', '"sealed": true', 1))
    code, answer = audit(finished)
    assert code == 1 and any(receipt.name in line for line in answer["problems"])
    finished.commit("Edit a receipt")
    receipt.unlink()
    finished.commit("Remove a receipt")
    code, answer = audit(finished, "--rev", "HEAD")
    assert code == 1 and any(
        "'train'" in line and "outside the runner" in line for line in answer["problems"]
    )


def test_a_run_cache_restore_is_vouched_for_by_the_older_receipt(finished: Workspace) -> None:
    finished.set("train.seed", 1)
    finished.run("dvc", "repro")
    finished.set("train.seed", 0)
    finished.run("dvc", "repro")
    code, answer = audit(finished)
    assert code == 0, answer["problems"]


def test_raw_data_that_changed_show_until_they_are_added_again(finished: Workspace) -> None:
    raw = finished.root / "data/raw/wdbc/records.parquet"
    original = raw.read_bytes()
    raw.write_bytes(original + b"\0")
    code, answer = audit(finished)
    assert code == 1 and any("wdbc" in line and "airlock add" in line for line in answer["problems"])
    raw.write_bytes(original)
    assert audit(finished)[0] == 0


def test_a_rewritten_ledger_is_found_through_the_receipts(finished: Workspace) -> None:
    (finished.home / "airlock/airlock-default/scratch.db").unlink()
    code, answer = audit(finished)
    assert code == 1 and any("ledger" in line.lower() for line in answer["problems"])


def test_the_boundary_as_a_graph(finished: Workspace) -> None:
    assert finished.run("airlock", "audit", "--graph").stdout.startswith("flowchart")
    finished.run("airlock", "audit", "--svg", "boundary.svg")
    assert (finished.root / "boundary.svg").read_text().startswith("<svg")


def test_the_table_is_for_people(finished: Workspace) -> None:
    text = finished.run("airlock", "audit").stdout
    assert "The boundary holds." in text and "all five" in text


def test_receipts_of_a_vanished_workspace_come_home(finished: Workspace) -> None:
    """A queued experiment runs in a copy of the workspace; DVC brings home its dvc.lock and not its new files."""
    receipts = list((finished.root / "receipts/train").glob("*.json"))
    before = {path: path.read_bytes() for path in receipts}
    for path in receipts:
        path.unlink()
    done = finished.run("airlock", "audit", check=False)
    assert done.returncode == 0, done.stdout
    assert "brought home" in done.stderr
    assert {path: path.read_bytes() for path in receipts} == before
