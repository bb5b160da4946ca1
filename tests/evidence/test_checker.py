"""One checker of the evidence: what the audit used to call "holds" is found, and a gap is never a yes.

Each attack comes with its control: everything that the audit asked before the checker (zones, signatures,
receipts with the hashes of dvc.lock) is still answered with yes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from airlock.evidence import zones
from airlock.evidence.audit import audit
from airlock.evidence.checker import Evidence
from airlock.evidence.revisions import Workspace as Files
from airlock.inside.digests import sha256_path, walk
from tests.conftest import Workspace

RELEASE = "data/released/release"


def looked_well_before(root: Path) -> bool:
    """The questions of the audit as it was."""
    evidence = Evidence(Files(root))
    return (
        zones.problems(evidence.graph) == []
        and not any(receipt.problem for receipt in evidence.receipts)
        and all(evidence.matching(name) for name in evidence.lock)
    )


def swap_the_model(workspace: Workspace) -> None:
    """Let the next stage have something else, then put the model back."""
    (workspace.root / "data/model/more.txt").write_text("a record")
    workspace.run("dvc", "repro", "-s", "evaluate")
    (workspace.root / "data/model/more.txt").unlink()


def revert_the_code(workspace: Workspace) -> None:
    file = workspace.root / "stages/open/train.py"
    text = file.read_text()
    file.write_text(text + "# other code\n")
    workspace.run("dvc", "repro", "-s", "train")
    file.write_text(text)


def hide_in_a_cache_folder(workspace: Workspace) -> None:
    """DVC does not look into such a folder; the stage could."""
    (workspace.root / RELEASE / "__pycache__").mkdir()
    (workspace.root / RELEASE / "__pycache__/records.csv").write_text("a record")


def add_a_file(workspace: Workspace) -> None:
    (workspace.root / "data/model/more.txt").write_text("a record")


def hide_from_dvc(workspace: Workspace) -> None:
    """What .dvcignore names DVC neither hashes nor shows as changed."""
    (workspace.root / ".dvcignore").write_text("more.txt\n")
    add_a_file(workspace)


def remove_the_lock(workspace: Workspace) -> None:
    (workspace.root / "dvc.lock").unlink()


def remove_one_entry(workspace: Workspace) -> None:
    document = yaml.safe_load((workspace.root / "dvc.lock").read_text())
    del document["stages"]["evaluate"]
    (workspace.root / "dvc.lock").write_text(yaml.safe_dump(document))


def lead_elsewhere(workspace: Workspace) -> None:
    """The same bytes, behind a link: whoever owns them there changes them after the audit."""
    model = workspace.root / "data/model"
    model.rename(workspace.root.parent / "model")
    model.symlink_to(workspace.root.parent / "model")


ATTACKS: dict[str, tuple[Callable[[Workspace], None], str]] = {
    "swapped": (swap_the_model, "'evaluate' used another 'data/model' than stage 'train' made"),
    "reverted": (revert_the_code, "'train' used another 'stages/open"),
    "led elsewhere": (lead_elsewhere, "'data/model' is not what stage 'train' made"),
    "hidden": (hide_in_a_cache_folder, f"'{RELEASE}' is not what stage 'release' made"),
    "added": (add_a_file, "'data/model' is not what stage 'train' made"),
    "ignored": (hide_from_dvc, "'data/model' is not what stage 'train' made"),
    "no lock": (remove_the_lock, "cannot tell how stage 'ingest' was run"),
    "no entry": (remove_one_entry, "cannot tell how stage 'evaluate' was run"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_what_used_to_hold_is_found(finished: Workspace, name: str) -> None:
    attack, words = ATTACKS[name]
    attack(finished)
    assert looked_well_before(finished.root), "the attack shows without the checker"
    found = audit(finished.root).problems
    assert any(words in line for line in found), found


def test_what_makes_a_private_evaluation_agree_again_is_named_and_does(private: Workspace) -> None:
    """`dvc repro` alone does not run it, and `dvc repro -f evaluate-private` does not find it."""
    private.run("airlock", "evaluate")
    private.edit("stages/open/judged.py", "import annotations\n", "import annotations\n# otherwise\n")
    private.run("dvc", "repro")
    (problem,) = audit(private.root).problems
    assert problem.startswith("stage 'judged' used another 'stages/open/judged.py'")
    assert problem.endswith("run `airlock evaluate` and commit")
    private.run("airlock", "evaluate")
    assert not audit(private.root).problems
    assert Evidence(Files(private.root)).graph.stage("judged").address == "owner/dvc.yaml:judged"
    assert private.run("dvc", "status", "owner/dvc.yaml:judged").returncode == 0


def test_a_modeller_who_asks_for_a_private_evaluation_is_told_whose_it_is(
    private: Workspace, tmp_path: Path
) -> None:
    other = {"AIRLOCK_HOME": str(tmp_path / "of a modeller")}
    refused = private.run("airlock", "evaluate", check=False, environment=other)
    assert refused.returncode == 2 and len(refused.stderr.splitlines()) == 1
    assert "only the owner judges on private records" in refused.stderr


def test_a_stage_that_was_never_run_is_no_gap(workspace: Workspace) -> None:
    assert audit(workspace.root).problems == ()


def test_a_stage_that_dvc_yaml_no_longer_has_is_named(finished: Workspace) -> None:
    document = yaml.safe_load((finished.root / "dvc.lock").read_text())
    document["stages"]["gone"] = copy.deepcopy(document["stages"]["evaluate"])
    (finished.root / "dvc.lock").write_text(yaml.safe_dump(document))
    assert any("'gone'" in line for line in audit(finished.root).problems)


def test_compiled_code_in_a_commit_is_found(finished: Workspace) -> None:
    folder = finished.root / "stages/open/__pycache__"
    folder.mkdir(exist_ok=True)
    (folder / "train.cpython-311.pyc").write_bytes(b"other code")
    assert audit(finished.root).problems == (), "Python may leave it in a workspace"
    finished.run("git", "add", "-f", str(folder))
    finished.commit("Compiled code")
    assert any("compiled code" in line for line in audit(finished.root, "HEAD").problems)


def test_no_name_is_skipped_and_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "a/__pycache__").mkdir(parents=True)
    (tmp_path / "a/m.py").write_text("")
    (tmp_path / "a/__pycache__/m.cpython-311.pyc").write_text("")
    (tmp_path / "a/.hidden").write_text("")
    assert len(list(walk(tmp_path / "a"))) == 3
    assert [name for name, _ in walk(tmp_path / "a", compiled=False)] == [".hidden", "m.py"]
    before = sha256_path(tmp_path / "a")
    (tmp_path / "secret").write_text("a record")
    (tmp_path / "a/link").symlink_to(tmp_path / "secret")
    linked = sha256_path(tmp_path / "a")
    (tmp_path / "secret").write_text("another record")
    assert before != linked == sha256_path(tmp_path / "a")
