"""Receipts are believed only from pinned keys, under their own names, with every byte as signed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airlock.errors import KeysError
from airlock.evidence import receipts
from airlock.owner.home import Project
from airlock.owner.keys import Signer, signer

BODY = {"stage": "train", "zone": "open", "did_read": {"records": "no"}}


def make_signer(folder: Path) -> Signer:
    return signer(Project("test", folder))


@pytest.fixture
def owner(tmp_path: Path) -> Signer:
    return make_signer(tmp_path / "owner")


@pytest.fixture
def work(tmp_path: Path, owner: Signer) -> Path:
    receipts.write(tmp_path / "work", {**BODY, "stage": "ingest", "zone": "sensitive"}, owner)
    return tmp_path / "work"


def test_a_signed_receipt_is_believed(work: Path, owner: Signer) -> None:
    receipts.write(work, BODY, owner)
    assert [(receipt.stage, receipt.problem) for receipt in receipts.in_workspace(work)] == [
        ("ingest", ""),
        ("train", ""),
    ]


@pytest.mark.parametrize(("old", "new"), [('"no"', '"on"'), ('"open"', '"opem"'), ('"train"', '"tra1n"')])
def test_an_edited_receipt_is_not(work: Path, owner: Signer, old: str, new: str) -> None:
    path = receipts.write(work, BODY, owner)
    path.write_text(path.read_text().replace(old, new))
    assert receipts.in_workspace(work)[-1].problem


def test_a_renamed_receipt_is_not(work: Path, owner: Signer) -> None:
    path = receipts.write(work, BODY, owner)
    path.rename(path.with_name("0" * 16 + ".json"))
    assert "moved or renamed" in receipts.in_workspace(work)[-1].problem


def test_an_unknown_key_is_not(work: Path, tmp_path: Path) -> None:
    before = (work / receipts.PINNED).read_text()
    receipts.write(work, BODY, make_signer(tmp_path / "stranger"))
    (work / receipts.PINNED).write_text(before)
    assert "does not name" in receipts.in_workspace(work)[-1].problem


def test_a_modeller_signs_for_open_stages_only(work: Path, tmp_path: Path) -> None:
    modeller = make_signer(tmp_path / "modeller")
    receipts.write(work, BODY, modeller)
    forged = receipts.write(tmp_path / "elsewhere", {**BODY, "stage": "release", "zone": "release"}, modeller)
    (work / "receipts/release").mkdir()
    forged.rename(work / "receipts/release" / forged.name)
    problems = {receipt.stage: receipt.problem for receipt in receipts.in_workspace(work)}
    assert problems["ingest"] == problems["train"] == "" and "owner's key" in problems["release"]


def test_another_owner_is_refused_and_told_what_to_do(work: Path, tmp_path: Path) -> None:
    before = (work / receipts.PINNED).read_text()
    with pytest.raises(KeysError, match="airlock keys restore"):
        receipts.pin(work, make_signer(tmp_path / "other").public_key, owner=True)
    assert (work / receipts.PINNED).read_text() == before


@pytest.mark.parametrize(
    "text", ["", "{", "[]", json.dumps({"body": {}}), json.dumps({"body": {"stage": "x"}, "signature": "zz"})]
)
def test_garbage_is_reported_not_raised(text: str) -> None:
    assert receipts.read([("receipts/train/x.json", text)], "00")[0].problem
