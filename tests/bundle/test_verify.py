"""`airlock verify`: a bundle holds on a clean machine, and each kind of tampering is named in one line."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.numpy import load_file, save_file

from airlock.bundle import check, container, index, rerun
from airlock.bundle.contents import Contents
from airlock.bundle.verify import VerifyOptions, verify
from airlock.errors import InputError, KeysError
from airlock.owner.home import project
from airlock.owner.keys import Keyring
from airlock.run.machine import platform_facts
from tests.bundle.conftest import Submission
from tests.support import forgery
from tests.support.forgery import Edit, edit_json, edit_text, forge

QUICK = VerifyOptions(quick=True)


def clean(submission: Submission, home: Path, *arguments: str) -> tuple[int, str, str]:
    """`airlock` as a stranger would run it: an empty HOME, an empty folder, no key, no data."""
    home.mkdir()
    given = {"HOME": str(home), "AIRLOCK_HOME": str(home / "none")}
    done = submission.workspace.run(
        "env", "-C", str(home), "airlock", *arguments, check=False, environment=given
    )
    return done.returncode, done.stdout, done.stderr


def test_it_holds_on_a_clean_machine(submission: Submission, tmp_path: Path) -> None:
    code, out, _ = clean(submission, tmp_path / "home", "verify", str(submission.bundle), "--json")
    answer = json.loads(out)
    assert (code, answer["problems"]) == (0, [])
    assert {one["stage"]: one["verdict"] for one in answer["agreements"]} == dict.fromkeys(
        ("train", "evaluate", "report"), "bit-identical"
    )
    released = {one["out"]: one for one in answer["guarantees"]}
    assert {"data/released/relevance", "data/released/release"} <= released.keys()
    for one in (released["data/released/relevance"], released["data/released/release"]):
        assert 0 < one["recomputed"] <= one["stated"]["epsilon"] <= 1.0
    assert "the code in the bundle" in answer["run_again"]
    (row,) = answer["results"]
    assert row["recomputed"] == row["accuracy"] > 0.8
    (total,) = answer["totals"]
    assert (total["population"], total["releases"], total["cap"]) == ("wdbc", 2, 10.0)
    assert 0.999 < total["epsilon"] <= 1.0, "the two together are what was asked for"
    assert list((tmp_path / "home").iterdir()) == [], "it left something behind"


def test_quick_runs_nothing_and_the_table_says_so(submission: Submission, tmp_path: Path) -> None:
    code, out, _ = clean(submission, tmp_path / "home", "verify", str(submission.bundle), "--quick")
    assert code == 0 and "It verifies." in out and "no stage (--quick)" in out and "train again" not in out
    assert "not recomputed" in out, "a figure that was not computed again is shown as if it had been"
    assert "In all, 'wdbc' has spent epsilon 1 of 10 over 2 releases" in " ".join(out.split())


def test_tables_lose_no_word_in_a_log_or_a_narrow_terminal(submission: Submission) -> None:
    asked = ("airlock", "verify", str(submission.bundle), "--quick")
    out = submission.workspace.run(*asked, environment={"COLUMNS": "80"}).stdout
    assert "…" not in out and max(map(len, out.splitlines())) <= 80
    for name in ("relevance ", "release ", "holdout ", "reference ", "coefficients "):
        assert any(line.strip().startswith(name) or f" {name}" in line for line in out.splitlines()), name


def test_one_flipped_byte_in_any_member_is_named(submission: Submission, tmp_path: Path) -> None:
    data = submission.bundle.read_bytes()
    flipped = tmp_path / "flipped.zip"
    with zipfile.ZipFile(submission.bundle) as archive:
        infos = [info for info in archive.infolist() if info.file_size]
    flipped.write_bytes(data)
    with flipped.open("r+b", buffering=0) as file:
        for info in infos:
            place = info.header_offset + 30 + len(info.filename.encode()) + info.file_size // 2
            os.pwrite(file.fileno(), bytes([data[place] ^ 1]), place)
            problems = verify(flipped, QUICK).problems
            assert len(problems) == 1 and info.filename in problems[0], info.filename
            os.pwrite(file.fileno(), data[place : place + 1], place)
    assert len(infos) > 100


def test_a_byte_changed_with_its_checksum_is_named_too(submission: Submission, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    container.unpack(submission.bundle, tmp_path / "out")
    edit_text("params.yaml", "epsilon: 1.0", "epsilon: 0.1")(tmp_path / "out")
    container.pack(tmp_path / "out", tmp_path / "edited.zip")
    assert verify(tmp_path / "edited.zip", QUICK).problems == [
        "params.yaml was changed after the bundle was made"
    ]
    (tmp_path / "out/params.yaml").unlink()
    container.pack(tmp_path / "out", tmp_path / "edited.zip")
    assert verify(tmp_path / "edited.zip", QUICK).problems == ["params.yaml was removed from the bundle"]


def remove_receipt(folder: Path) -> None:
    next((folder / "receipts/train").glob("*.json")).unlink()


def edit_around_the_runner(folder: Path) -> None:
    edit_json("data/metrics/evaluate.json", lambda document: document.update(accuracy=0.999))(folder)
    forgery.lock(folder)


def open_the_wall(folder: Path) -> None:
    path = next((folder / "receipts/train").glob("*.json")).relative_to(folder)
    edit_json(str(path), lambda document: document["body"]["could_read"].update(sealed=True))(folder)


def lower_the_cap(folder: Path) -> None:
    path = folder / "ledger/scratch.json"
    path.write_text(path.read_text().replace('\\"epsilon\\":10.0', '\\"epsilon\\":0.5'))


def other_event(document: dict[str, Any]) -> None:
    document["proven"]["event"] = {"kind": "gaussian", "noise_multiplier": 50.0}


def understate(document: dict[str, Any]) -> None:
    document["proven"]["epsilon"] = 0.25


RELEASE = "data/released/release/release.json"
USES = "    - data/released/relevance\n    - data/released/release\n"
READS_SEALED = edit_text("dvc.yaml", USES, USES + "    - data/sealed\n")
TAMPERINGS: dict[str, tuple[Edit, bool, str]] = {
    "a removed receipt": (remove_receipt, False, "stage 'train': no signed receipt"),
    "an edited receipt": (open_the_wall, False, "has a wrong signature"),
    "a stage run outside the runner": (edit_around_the_runner, False, "stage 'evaluate': no signed receipt"),
    "an open stage that depends on records": (
        READS_SEALED,
        False,
        "open stage 'train' depends on sealed records 'data/sealed'",
    ),
    "an open stage that could read records": (open_the_wall, True, "open stage 'train' could read records"),
    "an epsilon that does not follow": (
        edit_json(RELEASE, understate),
        True,
        "epsilon 0.25 does not follow from its events: which give 0.97",
    ),
    "an event that was not charged": (edit_json(RELEASE, other_event), True, "charged for something else"),
    "a cap that was passed": (lower_the_cap, True, "takes 'wdbc' to epsilon 1, cap 0.5"),
    "an edited ledger": (lower_the_cap, False, "entry 2 (cap) was edited"),
    "other code": (
        edit_text("stages/open/train.py", '"""', '"""Other. '),
        False,
        "another 'stages/open/train.py'",
    ),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_named_although_the_owner_signed_it(
    submission: Submission, tmp_path: Path, name: str
) -> None:
    edit, deep, expected = TAMPERINGS[name]
    forged = forge(submission.bundle, tmp_path / "forged.zip", submission.signer, edit, deep=deep)
    problems = verify(forged, QUICK).problems
    assert problems and expected in problems[0], problems


def test_a_deep_forgery_without_an_edit_verifies(submission: Submission, tmp_path: Path) -> None:
    """Otherwise the forger's own mistakes might be what the tests above find."""
    forged = forge(
        submission.bundle, tmp_path / "forged.zip", submission.signer, lambda folder: None, deep=True
    )
    assert verify(forged, QUICK).problems == []


def test_a_bundle_of_nonsense_is_refused_without_a_traceback(submission: Submission, tmp_path: Path) -> None:
    edits: list[Callable[[Path], Any]] = [
        lambda folder: (folder / "dvc.yaml").unlink(),
        lambda folder: (folder / "params.yaml").write_text("- a\n- b\n"),
        lambda folder: (folder / "ledger/scratch.json").write_text("[]"),
        lambda folder: (folder / "data/released/release/release.json").write_text("{}"),
        lambda folder: (folder / "attestations/train.dsse.json").write_text("[]"),
        lambda folder: (folder / "ro-crate-metadata.json").write_text("{}"),
    ]
    for number, edit in enumerate(edits):
        forged = forge(
            submission.bundle,
            tmp_path / f"{number}.zip",
            submission.signer,
            lambda folder, edit=edit: edit(folder) and None,
        )
        assert verify(forged, QUICK).problems, number


def invent_a_figure(folder: Path) -> None:
    """Drop two stages from the books, and write what one likes in their place."""
    document = yaml.safe_load((folder / "dvc.lock").read_text())
    for name in ("evaluate", "report"):
        del document["stages"][name]
        shutil.rmtree(folder / "receipts" / name)
        (folder / f"attestations/{name}.dsse.json").unlink()
    (folder / "dvc.lock").write_text(yaml.safe_dump(document))
    edit_json("data/metrics/evaluate.json", lambda document: document.update(accuracy=1.0))(folder)


def test_an_invented_figure_is_found(submission: Submission, tmp_path: Path) -> None:
    forged = forge(submission.bundle, tmp_path / "forged.zip", submission.signer, invent_a_figure, deep=True)
    problems = verify(forged, QUICK).problems
    assert problems == [
        f"cannot tell how stage '{name}' was run: dvc.lock has no entry for it, but '{out}' is there; "
        "restore dvc.lock from git, or run `dvc repro` and commit"
        for name, out in (("evaluate", "data/metrics/evaluate.json"), ("report", "data/report"))
    ]
    contents = Contents(tmp_path / "forged")
    others = [name for name in check.CHECKS if name not in ("boundary", "outs")]
    assert not [line for name in others for line in check.CHECKS[name][0](contents)], (
        "another step finds it too"
    )
    assert "'data/metrics/evaluate.json' is in the bundle, and no signed receipt" in "".join(
        check.complete(contents)
    )


def test_a_replaced_page_is_found_although_another_machine_is_claimed(
    submission: Submission, tmp_path: Path
) -> None:
    container.unpack(submission.bundle, tmp_path)
    page = tmp_path / "data/report"
    text = (page / "report.html").read_text()
    other = tmp_path / "other"
    other.mkdir()
    (other / "report.html").write_text(text.replace("</h1>", " is the best</h1>", 1))
    assert rerun._page(other, page, alike=False) == rerun._page(other, page, alike=True) == rerun.DIFFERENT
    (other / "report.html").write_text(re.sub(r"0\.9[0-9]+", "0.9123", text))
    assert rerun._page(other, page, alike=False) == rerun.FIGURES
    assert rerun._page(other, page, alike=True) == rerun.DIFFERENT
    assert rerun._page(page, page, alike=False) == rerun.PAGE
    (other / "report.html").unlink()
    assert rerun._page(other, page, alike=False) == rerun.DIFFERENT
    here = platform_facts()
    assert rerun._machine(here, here) == "" and "K5" in rerun._machine({**here, "processor": "K5"}, here)


def deep_json() -> str:
    return "[" * 200_000


BOMB = "a: &a [x, x]\n" + "".join(
    f"{n}: &{n} [*{p}, *{p}]\n" for p, n in zip("abcdefgh", "bcdefghi", strict=True)
)
ENDLESS: dict[str, Edit] = {
    "a YAML bomb": lambda folder: (folder / "params.yaml").write_text(BOMB) and None,
    "a bomb in the lock": lambda folder: (folder / "dvc.lock").write_text(BOMB) and None,
    "a bomb in a schema": lambda folder: (folder / "data/schemas/wdbc.yaml").write_text(BOMB) and None,
    "a deep receipt": lambda folder: (
        next(folder.glob("receipts/train/*.json")).write_text(deep_json()) and None
    ),
    "a deep ledger": lambda folder: (folder / "ledger/scratch.json").write_text(deep_json()) and None,
    "an endless line": lambda folder: (
        (folder / "params.yaml").write_text("dataset: " + "x" * 3_000_000) and None
    ),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_what_grows_deep_or_never_ends_is_refused_at_once(
    submission: Submission, tmp_path: Path, name: str
) -> None:
    forged = forge(submission.bundle, tmp_path / "forged.zip", submission.signer, ENDLESS[name])
    start = time.monotonic()
    assert verify(forged, QUICK).problems
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("member", ["a/" * 200 + "b", "a" * 600, "a/" * 1500 + "b"])
def test_a_deep_folder_is_refused_before_it_is_made(tmp_path: Path, member: str) -> None:
    with zipfile.ZipFile(tmp_path / "deep.zip", "w") as archive:
        archive.writestr(member, "")
    (problem,) = verify(tmp_path / "deep.zip", QUICK).problems
    assert "list of files was changed" in problem


def test_a_collection_holds_bundles_and_no_collections(submission: Submission, tmp_path: Path) -> None:
    """Each level would be unpacked beside the ones above it, all at the same time."""
    inner = submission.bundle
    for level in range(3):
        folder = tmp_path / str(level)
        (folder / "runs").mkdir(parents=True)
        shutil.copy(inner, folder / "runs/1.zip")
        index.write(folder, {"commits": []}, submission.signer)
        inner = tmp_path / f"{level}.zip"
        container.pack(folder, inner)
    assert verify(tmp_path / "0.zip", QUICK).problems == [], "the control: one level is a collection"
    (problem,) = verify(inner, QUICK).problems
    assert "a collection is in a collection" in problem


STRANGE: dict[str, Edit] = {
    "no figure": edit_json(
        "data/metrics/evaluate.json", lambda document: document.update(accuracy="\x1b[2J")
    ),
    "no object": lambda folder: (folder / "data/metrics/evaluate.json").write_text("[]") and None,
    "a figure twice": edit_text("data/metrics/evaluate.json", "{", '{"accuracy": 1.0, '),
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_document_of_another_form_is_one_line(submission: Submission, tmp_path: Path, name: str) -> None:
    """Signed by its owner, all of it: what is wrong is only what the documents say."""
    forged = forge(submission.bundle, tmp_path / "forged.zip", submission.signer, STRANGE[name], deep=True)
    (problem,) = verify(forged, QUICK).problems
    assert "not of its form" in problem or "cannot be read" in problem


def test_a_model_that_does_not_follow_from_the_release_is_found(
    submission: Submission, tmp_path: Path
) -> None:
    def edit(folder: Path) -> None:
        path = folder / "data/model/model.safetensors"
        save_file({name: tensor * 1.5 for name, tensor in load_file(path).items()}, path)

    forged = forge(submission.bundle, tmp_path / "forged.zip", submission.signer, edit, deep=True)
    code, _, err = clean(submission, tmp_path / "home", "verify", str(forged))
    assert code == 1 and err.strip().count("\n") == 0, "more than one line"
    assert "stage 'train' run again on the same kind of machine made another 'data/model'" in err


def test_code_in_a_bundle_runs_behind_the_wall_only(submission: Submission, tmp_path: Path) -> None:
    mark, code = tmp_path / "escaped", "import contextlib, pathlib, sys\nsys.stderr.write('imported ')\n"
    code += f"with contextlib.suppress(OSError):\n    pathlib.Path({str(mark)!r}).touch()\n"
    forged = forge(
        submission.bundle,
        tmp_path / "forged.zip",
        submission.signer,
        lambda folder: _append(folder / "stages/__init__.py", code),
        deep=True,
    )
    _, out, err = clean(submission, tmp_path / "home", "verify", str(forged), "--json")
    assert "imported" in err, "the code of the bundle was not run at all"
    assert json.loads(out)["verifies"] and not mark.exists()


def _append(file: Path, text: str) -> None:
    file.write_text(file.read_text() + text)


def test_a_release_that_does_not_come_from_the_records_is_found(
    submission: Submission, tmp_path: Path
) -> None:
    def edit(folder: Path) -> None:
        path = folder / "data/released/release/release.safetensors"
        save_file({name: tensor + 1 for name, tensor in load_file(path).items()}, path)

    forged = forge(submission.bundle, tmp_path / "forged.zip", submission.signer, edit, deep=True)
    done = submission.workspace.run(
        "airlock", "verify", str(forged), "--quick", "--with-records", check=False
    )
    assert done.returncode == 1 and "made another 'data/released/release'" in done.stderr


def test_keys_are_given_to_nobody_elses_bundle(
    submission: Submission, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRLOCK_HOME", str(tmp_path))
    Keyring.create(project(submission.workspace.root))
    with pytest.raises(KeysError, match="your own bundles only"):
        verify(submission.bundle, VerifyOptions(quick=True, records=submission.workspace.root))


def test_a_named_key_is_asked_for(submission: Submission) -> None:
    key = submission.signer.public_key.hex()
    assert verify(submission.bundle, VerifyOptions(quick=True, key=key)).problems == []
    (problem,) = verify(submission.bundle, VerifyOptions(quick=True, key="0" * 64)).problems
    assert key in problem


def test_a_bundle_of_a_newer_format_is_a_wrong_question(submission: Submission, tmp_path: Path) -> None:
    from airlock.inside.digests import canonical_json

    (tmp_path / "out").mkdir()
    container.unpack(submission.bundle, tmp_path / "out")
    listed = tmp_path / "out/bundle.json"
    body = json.loads(listed.read_text())["body"] | {"format": 99}
    listed.write_text(
        json.dumps({"body": body, "signature": submission.signer.sign(canonical_json(body)).hex()})
    )
    container.pack(tmp_path / "out", tmp_path / "newer.zip")
    with pytest.raises(InputError, match="newer"):
        verify(tmp_path / "newer.zip", QUICK)


def test_it_leaves_no_folder_behind(
    submission: Submission, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    verify(submission.bundle, QUICK)
    assert os.listdir(tmp_path) == []


def test_several_commits_in_one_file_are_checked_one_by_one(submission: Submission, tmp_path: Path) -> None:
    paper = tmp_path / "paper.zip"
    commit = submission.workspace.run("git", "rev-parse", "HEAD").stdout.strip()
    who = {f"GIT_{role}_{part}": "t" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    later = submission.workspace.run(
        "git", "commit-tree", "-p", commit, "-m", "Again", "HEAD^{tree}", environment=who
    )
    again = later.stdout.strip()
    asked = ("airlock", "bundle", "--rev", commit, "--rev", "HEAD", "--output", str(paper))
    twice = submission.workspace.run(*asked, check=False)
    assert twice.returncode == 2 and "which is named already: name each once" in twice.stderr
    submission.workspace.run("airlock", "bundle", "--rev", commit, "--rev", again, "--output", str(paper))
    verdict = verify(paper, QUICK)
    assert verdict.problems == [] and [one.commit for one in verdict.results] == [commit, again]
    (result, _) = verdict.results
    assert (result.data, result.mechanism, result.passes) == ("wdbc", "coefficients", 2) and (
        result.accuracy or 0
    ) > 0.8

    (tmp_path / "out").mkdir()
    container.unpack(paper, tmp_path / "out")
    run = sorted((tmp_path / "out/runs").glob("*.zip"))[1]
    other = forge(
        submission.bundle,
        tmp_path / "other.zip",
        submission.signer,
        edit_json(RELEASE, understate),
        deep=True,
    )
    run.write_bytes(other.read_bytes())
    container.pack(tmp_path / "out", paper)
    assert verify(paper, QUICK).problems == [f"runs/{run.name} was changed after the bundle was made"]
    index.write(
        tmp_path / "out",
        {"project": "p", "commits": [commit, again], "committed": "", "airlock": ""},
        submission.signer,
    )
    container.pack(tmp_path / "out", paper)
    (problem,) = verify(paper, QUICK).problems
    assert problem.startswith(f"{run.stem}: ") and "does not follow" in problem
