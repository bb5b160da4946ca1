"""`airlock bundle`: the same commit gives the same bytes, and nothing goes in that must stay out."""

from __future__ import annotations

import base64
import json
import shutil
import zipfile
from pathlib import Path

import pytest

from airlock.bundle import attestations, container
from airlock.owner.keys import verify as signed_by
from tests.bundle.conftest import Submission
from tests.conftest import Workspace
from tests.support import planted


def members(bundle: Path) -> set[str]:
    return set(zipfile.ZipFile(bundle).namelist())


def test_it_holds_what_a_reviewer_needs(submission: Submission) -> None:
    found = members(submission.bundle)
    needed = {
        "dvc.yaml",
        "dvc.lock",
        "params.yaml",
        "constraints.txt",
        "pyproject.toml",
        "data/schemas/wdbc.yaml",
        "bundle.json",
    }
    needed |= {
        "data/model/model.safetensors",
        "data/metrics/evaluate.json",
        "data/plots/confusion.csv",
        "data/report/report.html",
    }
    needed |= {
        "data/released/release/release.json",
        "ledger/scratch.json",
        "receipts/runner.pub",
        "ro-crate-metadata.json",
    }
    needed |= {
        f"attestations/{name}.dsse.json"
        for name in ("dataset", "ingest", "relevance", "release", "train", "evaluate", "report")
    }
    assert needed <= found
    assert not [
        name
        for name in found
        if name.startswith(("data/raw", "data/sealed", "tests/", ".")) or name.endswith((".pyc", ".db"))
    ]


def test_the_same_commit_gives_the_same_bytes_although_work_went_on(
    finished: Workspace, tmp_path: Path
) -> None:
    finished.run("airlock", "bundle", "--output", str(tmp_path / "first.zip"))
    commit = finished.run("git", "rev-parse", "HEAD").stdout.strip()
    finished.run(
        "airlock",
        "budget",
        "set",
        "wdbc",
        "--epsilon",
        "20",
        "--delta",
        "1e-5",
        "--who",
        "t",
        "--why",
        "later",
    )
    finished.set("train.seed", 1)
    shutil.rmtree(finished.root / "data/model")
    finished.commit("Go on")
    finished.run("airlock", "bundle", "--rev", commit, "--output", str(tmp_path / "second.zip"))
    assert (tmp_path / "first.zip").read_bytes() == (tmp_path / "second.zip").read_bytes()
    refused = finished.run("airlock", "bundle", "--rev", "nowhere", check=False)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)

    shutil.rmtree(finished.root / ".dvc/cache/files")
    missing = finished.run("airlock", "bundle", "--rev", commit, check=False)
    assert missing.returncode == 2 and "dvc pull -r released" in missing.stderr


def test_what_would_not_verify_is_not_written(finished: Workspace, tmp_path: Path) -> None:
    stranger = finished.run(
        "airlock", "bundle", check=False, environment={"AIRLOCK_HOME": str(tmp_path / "elsewhere")}
    )
    assert stranger.returncode == 2 and "key" in stranger.stderr

    (finished.root / "stages/open/train.py").open("a").write("# changed\n")
    finished.commit("Change the code without running it")
    refused = finished.run("airlock", "bundle", check=False)
    assert refused.returncode == 1 and "another 'stages/open/train.py'" in refused.stderr

    finished.edit("dvc.yaml", "meta: {zone: open}", "meta: {}")
    finished.commit("Break the zones")
    refused = finished.run("airlock", "bundle", check=False)
    assert refused.returncode == 1 and "'dataset' has no zone" in refused.stderr
    assert not list(finished.root.glob("*.zip"))


def test_a_private_bundle_holds_no_secret_and_its_release_is_made_again(
    private: Workspace, tmp_path: Path
) -> None:
    bundle = tmp_path / "private.zip"
    private.run("airlock", "bundle", "--output", str(bundle))
    (tmp_path / "out").mkdir()
    container.unpack(bundle, tmp_path / "out")
    search = planted.wanted()
    assert search.below(private.home / "records.csv"), "the search finds nothing at all"
    assert search.below(tmp_path / "out", bundle) == []

    everything = bundle.read_bytes()
    home = next((private.home / "airlock").iterdir())
    secrets = [path.read_bytes() for path in (home / "keys").rglob("*") if path.is_file()]
    sealed = [path.read_bytes()[:64] for path in (private.root / "data/sealed").glob("*.sealed")]
    lines = [
        line.encode() for path in (home / "log").rglob("*.jsonl") for line in path.read_text().splitlines()
    ]
    assert secrets and sealed and lines
    for secret in [*secrets, *sealed]:
        assert (
            secret not in everything
            and secret.hex().encode() not in everything
            and base64.b64encode(secret) not in everything
        )
    # The pipeline ran in `unprivate`, of which this workspace is a copy.
    for line in [*lines, str(private.home).encode(), str(private.root).encode(), b"/unprivate/"]:
        assert line not in everything

    elsewhere = {"AIRLOCK_HOME": str(tmp_path / "none")}
    checked = json.loads(
        private.run("airlock", "verify", str(bundle), "--json", "--own-code", environment=elsewhere).stdout
    )
    assert checked["verifies"] and "with the code of this workspace" in checked["run_again"]
    private.run("airlock", "keys", "rotate")  # its noise came from the generation before
    before = private.run("airlock", "budget", "history", "--json").stdout
    remade = json.loads(
        private.run("airlock", "verify", str(bundle), "--quick", "--with-records", "--json").stdout
    )
    assert [(one["stage"], one["verdict"]) for one in remade["agreements"]] == [
        ("relevance", "bit-identical"),
        ("release", "bit-identical"),
    ]
    assert private.run("airlock", "budget", "history", "--json").stdout == before, "it was charged"


def test_attestations_are_plain_dsse(submission: Submission, tmp_path: Path) -> None:
    with zipfile.ZipFile(submission.bundle) as archive:
        envelope = json.loads(archive.read("attestations/train.dsse.json"))
        model = archive.read("data/model/model.safetensors")
    payload, signature = base64.b64decode(envelope["payload"]), envelope["signatures"][0]
    # The encoding as it stands in the protocol,
    # https://github.com/secure-systems-lab/dsse/blob/master/protocol.md
    kind = envelope["payloadType"].encode()
    encoded = b" ".join([b"DSSEv1", str(len(kind)).encode(), kind, str(len(payload)).encode(), payload])
    assert signed_by(bytes.fromhex(signature["keyid"]), encoded, base64.b64decode(signature["sig"]))
    statement = json.loads(payload)
    assert (statement["_type"], statement["predicateType"]) == (
        attestations.STATEMENT,
        attestations.PREDICATE,
    )
    import hashlib

    subjects = {subject["name"]: subject["digest"] for subject in statement["subject"]}
    assert subjects["data/model/model.safetensors"] == {"sha256": hashlib.sha256(model).hexdigest()}
    materials = {material["name"] for material in statement["predicate"]["materials"]}
    assert "data/released/release/release.json" in materials and not [
        name for name in materials if name.startswith("data/sealed/")
    ]
    assert "landlock" in statement["predicate"]["environment"]["enforcement"]["layers"]


def test_the_crate_can_be_read_by_others(submission: Submission, tmp_path: Path) -> None:
    from rocrate.rocrate import ROCrate

    container.unpack(submission.bundle, tmp_path)
    crate = ROCrate(tmp_path)
    assert crate.mainEntity.id == "dvc.yaml" and "ComputationalWorkflow" in crate.mainEntity.type
    runs = {action.id: action for action in crate.root_dataset["mentions"] if action.type == "CreateAction"}
    assert runs["#run"]["instrument"].id == "dvc.yaml"
    assert "data/model/model.safetensors" in {result.id for result in runs["#run-train"]["result"]}
    listed = {part.id for part in crate.root_dataset["hasPart"]}
    assert {name for name in members(submission.bundle) if not name.startswith("stages/")} - {
        "ro-crate-metadata.json"
    } <= listed


@pytest.mark.skipif(
    not shutil.which("rocrate-validator"), reason="rocrate-validator is not on PATH (docs/submissions.md)"
)
def test_the_crate_conforms_to_its_profile(submission: Submission, tmp_path: Path) -> None:
    import subprocess

    container.unpack(submission.bundle, tmp_path)
    asked = [
        "rocrate-validator",
        "-y",
        "validate",
        "--no-paging",
        "-l",
        "REQUIRED",
        "-p",
        "workflow-run-crate",
        str(tmp_path),
    ]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
