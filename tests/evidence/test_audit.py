"""`airlock audit` says who could read records and who did, and finds what was made around the runner."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airlock.evidence import receipts
from airlock.evidence.audit import audit as evidence_audit
from airlock.owner.home import Project
from airlock.owner.keys import signer
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


def test_the_table_fits_into_eighty_columns(finished: Workspace) -> None:
    text = finished.run("airlock", "audit", environment={"COLUMNS": "80"}).stdout
    table = text[: text.index("Layers of")]
    assert all(f"{name} " in table for name in ("ingest", "evaluate-private", "sensitive", "release"))
    assert "…" not in text and max(map(len, table.splitlines())) <= 80


def test_the_owner_is_shown_compared_and_can_be_asked_for(finished: Workspace) -> None:
    owner = audit(finished)[1]["owner"]
    assert f"Signed by {owner} (the owner): every stage" in finished.run("airlock", "audit").stdout
    assert audit(finished, "--key", owner)[0] == 0
    code, answer = audit(finished, "--key", "0" * 64)
    assert code == 1 and owner in answer["problems"][0]


def test_receipts_that_a_stranger_signed_anew_are_found(finished: Workspace, tmp_path: Path) -> None:
    """Everything agrees with itself, and only the owner's own machine, or one who knows the key, can tell."""
    stranger = signer(Project("stranger", tmp_path / "stranger"))
    (finished.root / "receipts/runner.pub").unlink()
    for file in sorted((finished.root / "receipts").glob("*/*.json")):
        body = json.loads(file.read_text())["body"]
        file.unlink()
        kept = {name: value for name, value in body.items() if name not in ("version", "key")}
        receipts.write(finished.root, kept, stranger)
    assert evidence_audit(finished.root).problems == (), "the forgery has a flaw of its own"
    code, answer = audit(finished)
    assert code == 1 and "which is not this machine's" in answer["problems"][0]


def test_a_modellers_key_is_believed_once_the_owner_admits_it(finished: Workspace, tmp_path: Path) -> None:
    elsewhere = {"AIRLOCK_HOME": str(tmp_path / "modeller")}
    made = rows(audit(finished)[1])["evaluate"]["when"][:16]
    while (
        f"{datetime.now(UTC):%Y-%m-%dT%H:%M}" == made
    ):  # receipts tell minutes, and the newest one is asked for
        time.sleep(0.5)
    finished.run("dvc", "repro", "-f", "-s", "evaluate", environment=elsewhere)
    code, answer = audit(finished)
    (line,) = [line for line in answer["problems"] if "has not admitted" in line]
    assert code == 1 and "airlock keys admit" in line
    key = line.split("`")[1].split()[-1]
    refused = finished.run("airlock", "keys", "admit", key, check=False, environment=elsewhere)
    assert refused.returncode == 2 and "key" in refused.stderr

    (finished.root / "receipts/runner.pub").open("a").write(key + "\n")  # as a stranger would
    assert audit(finished)[0] == 1
    finished.run("airlock", "keys", "admit", key)
    code, answer = audit(finished)
    assert code == 0 and rows(answer)["evaluate"]["signer"] == key, answer["problems"]


@pytest.mark.parametrize("places", ["train/*.json", "**/*.*"], ids=["one stage's", "of all that ever ran"])
def test_receipts_of_a_vanished_workspace_come_home(finished: Workspace, places: str) -> None:
    """A queued experiment runs in a copy of the workspace; DVC brings home its dvc.lock and not its new
    files.
    """
    receipts = list((finished.root / "receipts").glob(places))
    before = {path: path.read_bytes() for path in receipts}
    for path in receipts:
        path.unlink()
    done = finished.run("airlock", "audit", check=False)
    assert done.returncode == 0, done.stdout
    assert "brought home" in done.stderr
    assert {path: path.read_bytes() for path in receipts} == before


def test_who_ran_as_root_and_without_a_group_is_said() -> None:
    from types import SimpleNamespace
    from typing import Any

    from airlock.commands.audit import _below
    from airlock.evidence.audit import AuditRow

    def told(user: str, limits: str) -> str:
        row = AuditRow("train", "open", False, False, "no", 0, [], [], "2026-01-01T00:00Z", user, limits, "k")
        answer: Any = SimpleNamespace(
            stages=[row], evidence=SimpleNamespace(policy=SimpleNamespace(owner="k"))
        )
        return "\n".join(_below(answer))

    assert "Ran as root" in told("root", "cgroup v2") and "each process" in told("its own", "rlimits")
    assert "root" not in told("its own", "cgroup v1") and "each process" not in told("its own", "cgroup v1")
