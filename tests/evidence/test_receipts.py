"""Receipts are believed only from pinned keys, under their own names, with every byte as signed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airlock.errors import InputError, KeysError
from airlock.evidence import checker, policy, receipts
from airlock.evidence.checker import Evidence
from airlock.evidence.receipt_shape import is_whole
from airlock.evidence.revisions import Workspace
from airlock.inside.digests import canonical_json
from airlock.owner.home import Project
from airlock.owner.keys import Signer, signer

BODY = {"stage": "train", "zone": "open", "did_read": {"records": "no"}}
WHOLE = {
    **BODY,
    "when": "2026-01-01T00:00Z",
    "deps": {},
    "outs": {},
    "could_read": {"raw": False, "sealed": False},
    "enforcement": {"layers": []},
    "releases": [],
}


def make_signer(folder: Path) -> Signer:
    return signer(Project("test", folder))


@pytest.fixture
def owner(tmp_path: Path) -> Signer:
    return make_signer(tmp_path / "owner")


@pytest.fixture
def work(tmp_path: Path, owner: Signer) -> Path:
    for name in ("work", "elsewhere"):
        (tmp_path / name).mkdir()
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


SIGNED_TEXTS = {
    "a body twice": lambda text: text.replace("{", '{"body": {"stage": "train", "accuracy": 1.0},', 1),
    "a field twice": lambda text: text.replace('"did_read"', '"zone": "sensitive", "did_read"', 1),
    "no number": lambda text: text.replace('"did_read"', '"passes": NaN, "did_read"', 1),
    "a number without end": lambda text: text.replace('"did_read"', '"passes": 1e999, "did_read"', 1),
    "half a letter": lambda text: text.replace('"did_read"', '"note": "\\ud800", "did_read"', 1),
    "very deep": lambda text: text.replace("{", '{"x": ' + "[" * 200_000 + "]" * 200_000 + ",", 1),
}


@pytest.mark.parametrize("kind", SIGNED_TEXTS)
def test_a_receipt_that_two_readers_read_differently_is_not(work: Path, owner: Signer, kind: str) -> None:
    path = receipts.write(work, BODY, owner)
    honest = json.loads(path.read_text())["body"]
    path.write_text(SIGNED_TEXTS[kind](path.read_text()))
    if kind.endswith("twice"):
        assert json.loads(path.read_text())["body"] == honest, "the control: the signature would be right"
    assert receipts.in_workspace(work)[-1].problem == "is not a receipt: it was cut or edited"


RELEASE = {
    "out": "data/released/release",
    "id": "0",
    "manifest": "0",
    "mechanism": "m",
    "passes": 1,
    "interactive": False,
    "proven": {"epsilon": "infinity", "delta": 0},
}
LEDGER = {"scratch": True, "sequence": 3, "head": "0"}


@pytest.mark.parametrize(
    "body",
    [
        *({}, {"deps": []}, {"when": 1}, {"releases": [{"passes": "x"}]}, {"outs": {"a": 1}}),
        *({"ledger": 3}, {"ledger": {**LEDGER, "sequence": "x"}}),
        *({"releases": [{**RELEASE, name: []}]} for name in RELEASE),
    ],
)
def test_a_signed_receipt_of_another_form_is_told_in_one_line(
    work: Path, owner: Signer, body: dict[str, object]
) -> None:
    """Whoever puts a key of their own in place of the owner's can sign anything: it must not stop the audit."""
    for name in ("dvc.yaml", "dvc.lock"):
        (work / name).write_text("stages: {}\n")
    (work / "params.yaml").write_text("dataset: wdbc\n")
    receipts.write(work, {**WHOLE, **body, "when": body.get("when", "now")} if body else BODY, owner)
    lines = list(checker.problems(Evidence(Workspace(work))))
    assert any("train" in line and "all that a receipt says" in line for line in lines), lines


def test_a_whole_receipt_is_whole_and_a_key_that_is_none_signs_nothing(work: Path, owner: Signer) -> None:
    whole = {**WHOLE, "releases": [RELEASE], "ledger": LEDGER}
    path = receipts.write(work, whole, owner)
    assert is_whole(json.loads(path.read_text())["body"]), "the control"
    (work / policy.OWNER_KEY).write_text("zz\n")
    path.write_text(json.dumps({"body": {**WHOLE, "key": "zz"}, "signature": "00"}))
    assert "wrong signature" in receipts.in_workspace(work)[-1].problem


def test_receipts_of_another_project_of_the_same_owner_are_not(work: Path, tmp_path: Path) -> None:
    """Each project has a key of its own: what was run there says nothing about what was run here."""
    (tmp_path / "other").mkdir()
    path = receipts.write(tmp_path / "other", BODY, make_signer(tmp_path / "other-home"))
    assert not receipts.in_workspace(tmp_path / "other")[-1].problem, "the control: at home it is believed"
    target = work / path.relative_to(tmp_path / "other")
    target.parent.mkdir(parents=True)
    target.write_bytes(path.read_bytes())
    assert "that the owner has not admitted" in receipts.in_workspace(work)[-1].problem


def test_a_renamed_receipt_is_not(work: Path, owner: Signer) -> None:
    path = receipts.write(work, BODY, owner)
    path.rename(path.with_name("0" * 16 + ".json"))
    assert "moved or renamed" in receipts.in_workspace(work)[-1].problem


def test_a_key_that_a_stranger_adds_is_not(work: Path, tmp_path: Path) -> None:
    stranger = make_signer(tmp_path / "stranger")
    receipts.write(work, BODY, stranger)
    key = stranger.public_key.hex()
    assert "has not admitted" in receipts.in_workspace(work)[-1].problem
    (work / receipts.OWNER_KEY).open("a").write(key + "\n")
    assert key in (work / receipts.OWNER_KEY).read_text().split(), "this was all that it took"
    assert "has not admitted" in receipts.in_workspace(work)[-1].problem
    with pytest.raises(KeysError, match="only the owner"):
        policy.admit(work, stranger, key)
    body = {"version": 1, "owner": policy.of_workspace(work).owner, "admitted": {key: ["open"]}}
    forged = {"body": body, "signature": stranger.sign(canonical_json(body)).hex()}
    (work / receipts.POLICY).write_text(json.dumps(forged))
    assert "not signed by the owner's key" in policy.of_workspace(work).problem
    assert "has not admitted" in receipts.in_workspace(work)[-1].problem


def test_an_admitted_key_signs_for_its_zones_only(work: Path, tmp_path: Path, owner: Signer) -> None:
    modeller = make_signer(tmp_path / "modeller")
    receipts.write(work, BODY, modeller)
    policy.admit(work, owner, modeller.public_key.hex())
    forged = receipts.write(tmp_path / "elsewhere", {**BODY, "stage": "release", "zone": "release"}, modeller)
    (work / "receipts/release").mkdir()
    forged.rename(work / "receipts/release" / forged.name)
    problems = {receipt.stage: receipt.problem for receipt in receipts.in_workspace(work)}
    assert problems["ingest"] == problems["train"] == "" and "may not sign for" in problems["release"]
    with pytest.raises(InputError, match="not a public key"):
        policy.admit(work, owner, "me")
    with pytest.raises(InputError, match="no zone"):
        policy.admit(work, owner, modeller.public_key.hex(), ("everything",))


def test_another_owner_is_refused_and_told_what_to_do(work: Path, tmp_path: Path) -> None:
    before = (work / receipts.OWNER_KEY).read_text()
    with pytest.raises(KeysError, match="airlock keys restore"):
        receipts.pin(work, make_signer(tmp_path / "other").public_key, owner=True)
    assert (work / receipts.OWNER_KEY).read_text() == before


@pytest.mark.parametrize(
    "text", ["", "{", "[]", json.dumps({"body": {}}), json.dumps({"body": {"stage": "x"}, "signature": "zz"})]
)
def test_garbage_is_reported_not_raised(text: str) -> None:
    assert receipts.read([("receipts/train/x.json", text)], policy.Policy("00"))[0].problem


def test_a_dismissed_key_does_not_come_back_with_an_older_list(
    work: Path, tmp_path: Path, owner: Signer
) -> None:
    """The owner signed the older list too: only its number tells."""
    modeller = make_signer(tmp_path / "modeller")
    key = modeller.public_key.hex()
    receipts.write(work, BODY, modeller)
    admitted = policy.admit(work, owner, key)
    assert receipts.in_workspace(work)[-1].problem == "" and admitted.serial == 1
    older = (work / receipts.POLICY).read_text()
    newest = policy.admit(work, owner, key, (), newest=1)
    assert "has not admitted" in receipts.in_workspace(work)[-1].problem and newest.serial == 2
    assert policy.outdated(newest, 2) == "", "the control"
    (work / receipts.POLICY).write_text(older)
    assert "list 1" in policy.outdated(policy.of_workspace(work), 2)
    with pytest.raises(KeysError, match="signed list 2"):
        policy.admit(work, owner, key, newest=2)
