"""What is checked is what DVC resolves: each attack here is one that DVC itself would have run, shown by
asking DVC.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from airlock.errors import BoundaryError
from airlock.evidence import reader, zones
from airlock.evidence.audit import audit
from airlock.evidence.revisions import load_graph

STAGE = "stages: {{{name}: {{cmd: {cmd}, wdir: {wdir}, outs: [{out}]}}}}\n"
PIPELINE = """stages:
  train:
    cmd: airlock run train
    meta: {zone: open}
    deps: [stages/open]
    outs: [{data/model: {remote: released}}]
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """As little of a workspace as DVC and the check need."""
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text("[core]\n    analytics = false\n")
    (tmp_path / ".dvc/config.local").write_text(f"[core]\n    site_cache_dir = {tmp_path}-site\n")
    (tmp_path / ".dvc/.gitignore").write_text("/config.local\n/tmp\n/cache\n")
    (tmp_path / "stages/open").mkdir(parents=True)
    (tmp_path / "stages/open/train.py").write_text("")
    (tmp_path / "data/raw").mkdir(parents=True)
    (tmp_path / "data/raw/records.csv").write_text("name\nsecret\n")
    (tmp_path / "params.yaml").write_text("dataset: wdbc\n")
    (tmp_path / "dvc.yaml").write_text(PIPELINE)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def commands(work: Path) -> list[str]:
    """Everything that DVC finds to do here, in its own words."""
    from dvc.repo import Repo

    return [str(stage.cmd or stage.addressing) for stage in Repo(str(work)).index.stages]


def commit(work: Path) -> None:
    for words in (["add", "-Af"], ["-c", "user.name=t", "-c", "user.email=t@e.org", "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=work, check=True)


def test_an_honest_workspace_is_read(work: Path) -> None:
    assert zones.problems(load_graph(work)) == [] and commands(work) == ["airlock run train"]


@pytest.mark.parametrize("folder", [".hidden", ".é", "deep/er", "with space"])
def test_a_pipeline_in_any_folder_is_seen_in_the_workspace_and_in_a_commit(work: Path, folder: str) -> None:
    place = work / folder
    place.mkdir(parents=True)
    up = "/".join(".." for _ in Path(folder).parts)
    (place / "dvc.yaml").write_text(
        STAGE.format(name="spy", cmd="cat data/raw/records.csv", wdir=up, out="o")
    )
    assert "cat data/raw/records.csv" in commands(work), "DVC would not have run it"
    assert any("'spy'" in line for line in zones.problems(load_graph(work)))
    commit(work)
    (place / "dvc.yaml").unlink()
    assert any("'spy'" in line for line in audit(work, "HEAD").problems)


def test_a_file_that_imports_data_is_refused_everywhere(work: Path) -> None:
    text = "deps: [{path: ../../data/raw/records.csv}]\nouts: [{path: copied.csv}]\n"
    (work / "stages/open/x.dvc").write_text(text)
    assert len(commands(work)) == 2, "DVC would not have copied it"
    with pytest.raises(BoundaryError, match="'stages/open/x.dvc' tracks data with DVC directly"):
        load_graph(work)
    commit(work)
    assert any("stages/open/x.dvc" in line for line in audit(work, "HEAD").problems)


def test_parameters_beside_another_pipeline_do_not_choose_its_command(work: Path) -> None:
    (work / "owner").mkdir()
    (work / "owner/dvc.yaml").write_text(STAGE.format(name="x", cmd="'${cmd}'", wdir="..", out="o"))
    (work / "owner/params.yaml").write_text("cmd: cat data/raw/records.csv\n")
    (work / "params.yaml").write_text("dataset: wdbc\ncmd: airlock run x\n")
    assert "cat data/raw/records.csv" in commands(work), "DVC would not have run it"
    with pytest.raises(BoundaryError, match="owner/params.yaml"):
        load_graph(work)
    (work / "owner/params.yaml").unlink()
    with pytest.raises(BoundaryError, match="'x': `cmd` must stand as it is"):
        load_graph(work)


def test_settings_that_load_other_parameters_are_refused(work: Path) -> None:
    with (work / ".dvc/config").open("a") as file:
        file.write("[hydra]\n    enabled = true\n    plugins_path = stages/open\n")
    with pytest.raises(BoundaryError, match=r"\[hydra\]"):
        load_graph(work)


def test_a_linked_pipeline_is_refused(work: Path) -> None:
    (work / "dvc.yaml").rename(work / "elsewhere.yaml")
    (work / "dvc.yaml").symlink_to("elsewhere.yaml")
    with pytest.raises(BoundaryError, match="'dvc.yaml' is a link"):
        load_graph(work)


def changed(**fields: object) -> str:
    document = yaml.safe_load(PIPELINE)
    document["stages"]["train"].update(fields)
    return yaml.safe_dump(document)


UNFOLLOWED: dict[str, tuple[str, str]] = {
    "variables": ("vars: [other.yaml]\n" + PIPELINE, "`vars`"),
    "variables of a stage": (changed(vars=["other.yaml"]), "`vars`"),
    "plots of any file": ("plots: [data/raw/records.csv]\n" + PIPELINE, "`plots`"),
    "a data set from elsewhere": (
        "datasets: [{name: d, type: url, url: 's3://b/x'}]\n" + PIPELINE,
        "`datasets`",
    ),
    "parameters that are records": (changed(params=[{"data/raw/records.csv": None}]), "publish in dvc.lock"),
    "a remote dep": (changed(deps=["s3://bucket/records.csv"]), "is not in this workspace"),
    "a remote out": (changed(outs=["remote://sealed/copy"]), "is not in this workspace"),
    "a templated command": (changed(cmd="airlock run ${dataset}"), "`cmd` must stand"),
    "a templated zone": (changed(meta={"zone": "${dataset}"}), "`meta` must stand"),
    "a key twice": (PIPELINE + "    cmd: cat data/raw/records.csv\n", "key twice"),
    "a line break of one parser": (
        PIPELINE.replace("meta", "desc: a\u2028    cmd: id\n    meta"),
        "line breaks",
    ),
    "a lone carriage return": (PIPELINE.replace("meta", "desc: a # \r    meta", 1), "line breaks"),
    "a number of one parser": (PIPELINE + "    desc: 1:30\n", "disagree on 'stages.train.desc'"),
    "an anchor": (PIPELINE.replace("[stages/open]", "&a [stages/open]"), "anchors"),
    "a tag": (PIPELINE.replace("airlock run train", "!!str airlock run train"), "tags"),
    "two documents": (PIPELINE + "---\n" + PIPELINE, "several documents"),
    "a merge": (
        PIPELINE.replace("    cmd", "    <<: {cmd: id}\n    cmd", 1),
        "merges",
    ),
}


@pytest.mark.parametrize("name", UNFOLLOWED)
def test_what_the_check_does_not_follow_does_not_run(name: str) -> None:
    text, words = UNFOLLOWED[name]
    with pytest.raises(BoundaryError, match=words):
        zones.parse(text, "dataset: wdbc")


def test_two_parsers_read_the_same_parameters() -> None:
    text = "dataset: wdbc\nrate: 1e-5\nmode: off\nwhen: {a: [1, 0.5, true, null]}\n"
    assert reader.load(text, "params.yaml")["rate"] == 1e-5
    for strange in ("dataset: 1:30", "dataset: 010", "dataset: 0o10"):
        with pytest.raises(BoundaryError, match="disagree on 'dataset'"):
            reader.load(strange, "params.yaml")


def bomb() -> str:
    """Nine levels of nine: half a gigabyte in a few lines."""
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    return "\n".join([*lines, *(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))])


@pytest.mark.parametrize(
    "make",
    [
        bomb,
        lambda: "[" * 100_000,
        lambda: "a: " * 1000 + "1",
        lambda: "x" * (reader.SIZE + 1),
        lambda: "\n".join(" " * n + "a:" for n in range(1300)),
    ],
)
def test_what_grows_or_never_ends_is_refused_at_once(make: Callable[[], str]) -> None:
    text, start = make(), time.monotonic()
    with pytest.raises(BoundaryError):
        reader.load(text, "params.yaml")
    assert time.monotonic() - start < 2
