"""Attacks with nothing but files of the repository, each on the one function that they meet; with controls.

Each went through on an earlier version.
"""

from __future__ import annotations

import importlib.util
import marshal
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airlock.bundle.sources import resolve
from airlock.commands.report import stale_stages
from airlock.errors import BoundaryError, InputError, ParamsError
from airlock.evidence import dvc_settings
from airlock.evidence.revisions import Commit, Workspace
from airlock.inside.digests import md5_path, sha256_path
from airlock.params import load_params
from airlock.run import confined, git, paths
from airlock.run.die_with_parent import leashed
from airlock.run.outs import publish
from tests.conftest import ROOT

TRACE = "import os; open(os.environ['TRACE'], 'w').write('x')\n"
MODULES = ("ctypes", "dvc", "select", "signal", "threading", "yaml")


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files that are called like modules; who imports one of them leaves a trace."""
    work = tmp_path / "work"
    work.mkdir()
    for name in MODULES:
        (work / f"{name}.py").write_text(TRACE)
    (work / "data").mkdir()
    (work / "data/project.json").write_text('{"id": "planted"}')
    monkeypatch.setenv("AIRLOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TRACE", str(tmp_path / "trace"))
    return work


def test_a_file_of_the_workspace_is_no_module_of_the_runner(planted: Path) -> None:
    subprocess.run(leashed(["true"]), cwd=planted, check=True)
    with pytest.raises(InputError, match="DVC"):
        stale_stages(planted)
    assert not (planted.parent / "trace").exists()
    bare = [word for word in leashed(["true"]) if word != "-P"]
    subprocess.run(bare, cwd=planted, check=False, capture_output=True)
    assert (planted.parent / "trace").exists(), "the control: without -P it is imported"


def test_every_program_that_is_started_by_its_module_is_started_so() -> None:
    started = [
        (path, line)
        for path in (ROOT / "airlock").rglob("*.py")
        for line in path.read_text().splitlines()
        if "sys.executable" in line and '"-m"' in line
    ]
    assert len(started) >= 3
    assert not [(path.name, line) for path, line in started if '"-P"' not in line]


def test_params_are_read_from_a_file_and_from_nothing_else(tmp_path: Path) -> None:
    """A link to another file had its values quoted; a pipe held the command up for ever."""
    secret = tmp_path / "secret.yaml"
    secret.write_text("dataset: [a patient]\n")
    with pytest.raises(ParamsError, match="a patient"):
        load_params(secret)  # the control: what an error quotes
    for make in (lambda path: path.symlink_to(secret), os.mkfifo, os.mkdir):
        place = tmp_path / "params.yaml"
        make(place)
        with pytest.raises(ParamsError) as refused:
            load_params(place)
        assert "patient" not in str(refused.value)
        place.rmdir() if place.is_dir() else place.unlink()


@pytest.mark.parametrize("kind", ["link", "link above", "pipe", "folder", "bytes", "large"])
def test_texts_of_the_workspace_are_plain_files(tmp_path: Path, kind: str, monkeypatch: Any) -> None:
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    (work / "receipts").mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "runner.pub").write_text("a key")
    place = work / "receipts/runner.pub"
    if kind == "link":
        place.symlink_to(elsewhere / "runner.pub")
    elif kind == "link above":
        (work / "receipts").rmdir()
        (work / "receipts").symlink_to(elsewhere)
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        place.write_bytes(b"\xff" if kind == "bytes" else b"x" * 20)
        monkeypatch.setattr(paths, "MOST_TEXT", 10)
    with pytest.raises(BoundaryError, match="runner.pub"):
        paths.read_text(work, "receipts/runner.pub")
    assert paths.read_text(work, "nothing") is None
    (work / "plain").write_text("text")
    assert Workspace(work).text("plain") == "text", "the control"


def test_no_open_stage_can_be_called_like_a_release_under_way(tmp_path: Path) -> None:
    """A killed release leaves sums without noise in its checkpoint, under a name that begins with a letter in
    six cases of sixteen.
    """

    def folder(zone: str, name: str, progress: str = "") -> Path:
        project = SimpleNamespace(checkpoints=tmp_path)
        asked: Any = SimpleNamespace(
            zone=zone, workspace=tmp_path, stage=SimpleNamespace(name=name), project=project
        )
        found = confined.checkpoint(asked, progress)
        assert found is not None
        return found

    release = folder("release", "release", "an id that anyone can compute")
    assert len(release.name) == 32, "the control: its name alone is one that a stage can have"
    assert folder("open", release.name) != release


def repository(folder: Path) -> Path:
    """A small one with a commit."""
    (folder / "stages").mkdir(parents=True)
    (folder / "dvc.yaml").write_text("stages: {}\n")
    (folder / "stages/train.py").write_text("good = 1\n")
    run(folder, "init", "-q", "-b", "main")
    commit(folder)
    return folder


def run(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    done = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path) -> str:
    run(folder, "add", "-A", "-f")
    run(folder, "commit", "-q", "-m", "x")
    return run(folder, "rev-parse", "HEAD")


def test_a_replaced_commit_is_still_audited_itself(tmp_path: Path) -> None:
    """`git replace` shows another commit under the name of this one."""
    work = repository(tmp_path / "work")
    good = run(work, "rev-parse", "HEAD")
    (work / "stages/train.py").write_text("evil = 1\n")
    evil = commit(work)
    run(work, "replace", evil, good)
    assert run(work, "show", f"{evil}:stages/train.py") == "good = 1", "the control: git itself is deceived"
    assert Commit(work, evil).text("stages/train.py") == "evil = 1\n"
    assert Commit(work, evil).digest("stages") != Commit(work, good).digest("stages")


@pytest.mark.parametrize("revision", ["--output=x", "-h", "nosuch", "HEAD:dvc.yaml", ""])
def test_a_revision_is_a_commit_and_no_option(tmp_path: Path, revision: str) -> None:
    work = repository(tmp_path / "work")
    with pytest.raises(InputError, match="no commit"):
        git.commit_of(work, revision)
    assert not (work / "x").exists()
    assert len(git.commit_of(work, "HEAD")) == 40


def test_settings_and_variables_do_not_run_programs_through_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, trace = repository(tmp_path / "work"), tmp_path / "trace"
    monitor = tmp_path / "monitor"
    monitor.write_text(f"#!/bin/sh\ntouch {trace}\n")
    monitor.chmod(0o755)
    run(work, "config", "core.fsmonitor", str(monitor))
    assert git.ask(work, "ls-files", "-z", "--stage") and not trace.exists()
    run(work, "status")
    assert trace.exists(), "the control: plain git runs it"
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path))
    assert Commit(work, "HEAD").text("dvc.yaml") == "stages: {}\n"


BROUGHT = {
    ".dvc/tmp/exps/celery/broker/in/1.msg": "a task of DVC's queue",
    ".dvc/cache/files/md5/ab/cdef": "an object of DVC's cache",
    ".dvc/config.local": "settings of one's own",
    ".venv/lib/python3.11/site-packages/zz.pth": "a line that Python runs",
    "stages/open/x.cpython-311.pyc": "compiled",
    "helper.so": "compiled",
}


@pytest.mark.parametrize("path", BROUGHT)
def test_a_commit_brings_nothing_that_programs_outside_the_wall_obey(tmp_path: Path, path: str) -> None:
    work = repository(tmp_path / "work")
    trees = Workspace(work), Commit(work, "HEAD")
    assert not [line for tree in trees for line in tree.unseen()], "the control"
    (work / path).parent.mkdir(parents=True, exist_ok=True)
    (work / path).write_text("x")
    assert not list(Workspace(work).unseen()), "what is not in git is the owner's own"
    commit(work)
    for tree in (Workspace(work), Commit(work, "HEAD")):
        assert [line for line in tree.unseen() if path in line]


def test_a_commit_brings_neither_links_nor_other_repositories(tmp_path: Path) -> None:
    work = repository(tmp_path / "work")
    (work / "data").symlink_to(tmp_path)
    commit(work)
    run(work, "update-index", "--add", "--cacheinfo", f"160000,{run(work, 'rev-parse', 'HEAD')},stages/other")
    run(work, "commit", "-q", "-m", "a submodule")
    for tree in (Workspace(work), Commit(work, "HEAD")):
        found = list(tree.unseen())
        assert len(found) == 2 and "'data' is a link" in found[0] and "submodule" in found[1]
    with pytest.raises(BoundaryError, match="link"):
        Commit(work, "HEAD").text("data")
    assert Commit(work, "HEAD").digest("stages"), "and nothing falls over"


GIT_SETTINGS = """
[core]
    fsmonitor = PROGRAM
    hooksPath = HOOKS
    sshCommand = PROGRAM
    pager = PROGRAM
    attributesFile = ATTRIBUTES
[alias]
    ls-files = !PROGRAM
[diff]
    external = PROGRAM
[diff "x"]
    textconv = PROGRAM
[filter "x"]
    clean = PROGRAM
    smudge = PROGRAM
[gpg]
    program = PROGRAM
[log]
    showSignature = true
[extensions]
    partialClone = origin
[remote "origin"]
    url = ext::PROGRAM
    promisor = true
"""
SIGNED = """tree {tree}
author t <t@example.org> 0 +0000
committer t <t@example.org> 0 +0000
gpgsig -----BEGIN PGP SIGNATURE-----
 x
 -----END PGP SIGNATURE-----

Signed
"""


def test_settings_of_a_clone_run_no_program(tmp_path: Path) -> None:
    """Nobody can commit .git/config; a clone that was handed over in an archive has it all the same."""
    work, trace, program = tmp_path / "work", tmp_path / "trace", tmp_path / "program"
    for folder in (work / "stages", tmp_path / "hooks"):
        folder.mkdir(parents=True)
    (work / "stages/x.py").write_text("x = 1\n")

    def ask(*arguments: str, given: str | None = None) -> str:
        command = ["git", "-c", "protocol.ext.allow=always", *arguments]
        done = subprocess.run(command, cwd=work, input=given, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    ask("init", "-q", "-b", "main")
    ask("add", "-A")
    signed = ask("hash-object", "-t", "commit", "-w", "--stdin", given=SIGNED.format(tree=ask("write-tree")))
    ask("update-ref", "HEAD", signed)
    program.write_text(f"#!/bin/sh\necho run >> {trace}\n")
    program.chmod(0o755)
    for hook in ("post-index-change", "post-checkout", "reference-transaction"):
        (tmp_path / "hooks" / hook).symlink_to(program)
    (tmp_path / "attributes").write_text("* filter=x diff=x\n")
    words = {"PROGRAM": program, "HOOKS": tmp_path / "hooks", "ATTRIBUTES": tmp_path / "attributes"}
    settings = GIT_SETTINGS
    for word, path in words.items():
        settings = settings.replace(word, str(path))
    with (work / ".git/config").open("a") as file:
        file.write(settings)
    assert list(Workspace(work).unseen()) == []
    assert Commit(work, "HEAD").text("stages/x.py") == "x = 1\n"
    assert Commit(work, "HEAD").digest("stages/x.py") and resolve(work, "HEAD")[0] == signed
    with pytest.raises(BoundaryError, match="does not have"):
        next(Commit(work, "HEAD")._hashes(["0" * 39 + "1"]))
    assert not trace.exists()
    for command in (("status",), ("show", "-s"), ("cat-file", "-e", "0" * 39 + "1")):
        trace.unlink(missing_ok=True)
        ask(*command)
        assert trace.exists(), f"the control: git {command[0]} runs it"


REFUSED = {
    "a command for a token": "['remote \"released\"']\nurl = webdavs://x/y\nbearer_token_command = touch /tmp/x\n",
    "a file with a credential process": "['remote \"released\"']\nurl = s3://x\nconfigpath = ./aws\n",
    "other parameters": "[hydra]\nenabled = true\n",
    "in quotes, with a comment": '["hydra"] # x\nenabled = true\n',
    "by another name": "[feature]\nmachine = true\n",
    "reports to a server": "[studio]\nurl = http://example.org\ntoken = x\n",
    "outs that are links": "[cache]\ntype = symlink\n",
    "outs that are hard links": '[cache]\ntype = "reflink,hardlink"\n',
    "a cache elsewhere": "[cache]\ndir = /tmp/x\n",
    "locks by links": "[core]\nhardlink_lock = true\n",
    "no repository": "[core]\nno_scm = true\n",
    "a section in a section": "[core]\n[[remote]]\nurl = x\n",
    "a remote in a section, with a command": "[remote]\n[[released]]\nbearer_token_command = x\n",
    "a remote in a section, and an option beside it": "[remote]\nurl = x\n[[released]]\nurl = x\n",
    "a remote in a section, with a strange name": "[remote]\n[[a b]]\nurl = x\n",
    "no settings": "url = x\n",
    "broken": "[core\n",
}


@pytest.mark.parametrize("name", REFUSED)
def test_settings_of_dvc_are_on_a_list(name: str) -> None:
    assert list(dvc_settings.problems(dvc_settings.SHARED, REFUSED[name]))


def test_settings_that_ship_are_on_it_and_secrets_are_ones_own() -> None:
    assert not list(dvc_settings.problems(dvc_settings.SHARED, (ROOT / ".dvc/config").read_text()))
    own = "[cache]\ndir = /big/cache\n['remote \"released\"']\naccess_key_id = x\nsecret_access_key = y\n"
    assert not list(dvc_settings.problems(dvc_settings.LOCAL, own))
    assert len(list(dvc_settings.problems(dvc_settings.SHARED, own))) == 3
    command = REFUSED["a command for a token"]
    assert list(dvc_settings.problems(dvc_settings.LOCAL, command)), "a program to run is nobody's"


def test_folder_of_a_queued_experiment_is_followed(tmp_path: Path) -> None:
    """What DVC's own executor writes there: a section of every kind, nearly all of them empty, and remotes in another
    form. In a workspace that was taken or handed over every queued experiment was refused.
    """
    from dvc.repo import Repo
    from dvc.repo.experiments.executor.local import TempDirExecutor

    class Written(TempDirExecutor):
        def __init__(self, folder: Path) -> None:
            self.root_dir, self.dvc_dir = str(folder), ".dvc"

    (tmp_path / "work").mkdir()
    # In a process of its own: DVC's logger keeps the standard output of whichever test loaded it first.
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q", "--no-scm"], cwd=tmp_path / "work", check=True)
    (tmp_path / "work/.dvc/config.local").write_text("['remote \"released\"']\n    url = /srv/clinic\n")
    with Repo(str(tmp_path / "work")) as repo:
        (tmp_path / "experiment/.dvc").mkdir(parents=True)
        Written(tmp_path / "experiment")._update_config(repo.config.read("local"))
        Written(tmp_path / "experiment")._update_config({"cache": {"dir": repo.cache.local_cache_dir}})
    text = (tmp_path / "experiment/.dvc/config.local").read_text()
    assert (
        "[hydra]" in text
        and "[[released]]" in text
        and not list(dvc_settings.problems(dvc_settings.LOCAL, text))
    )
    filled = text.replace("[hydra]", "[hydra]\nenabled = true")
    assert list(dvc_settings.problems(dvc_settings.LOCAL, filled)), "one that says something is not"


def test_dvc_itself_would_follow_what_a_second_parser_did_not_see(tmp_path: Path) -> None:
    """The control of the quoted section."""
    from dvc.config import Config  # type: ignore[import-untyped]

    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text(REFUSED["in quotes, with a comment"])
    assert Config(str(tmp_path / ".dvc"), validate=False)["hydra"]["enabled"] == "true"


@pytest.mark.parametrize("kind", ["folder", "deep folder", "pipe"])
def test_names_that_no_hash_counted_are_counted(tmp_path: Path, kind: str) -> None:
    """A folder without a file says something by its name alone, and so does a pipe."""
    work = tmp_path / "data/model"
    work.mkdir(parents=True)
    (work / "model.json").write_text("{}")
    before, md5 = sha256_path(work), md5_path(work)
    with paths.hold(tmp_path, ["data/model"]) as held:
        assert paths.hashes(held["data/model"])["sha256"] == before, "the control"
    place = work / "deep/a patient" if kind == "deep folder" else work / "a patient"
    os.mkfifo(place) if kind == "pipe" else place.mkdir(parents=True)
    assert sha256_path(work) != before, "an audit sees it"
    assert kind == "pipe" or md5_path(work) == md5, "DVC does not"
    with (
        pytest.raises(BoundaryError, match="no hash|plain file"),
        paths.hold(tmp_path, ["data/model"]) as held,
    ):
        paths.hashes(held["data/model"])


def test_empty_folders_are_not_published(tmp_path: Path) -> None:
    staging, work = tmp_path / "staging", tmp_path / "work"
    (staging / "data/open/x/kept/deep").mkdir(parents=True)
    (staging / "data/open/x/kept/deep/file").write_text("x")
    (staging / "data/open/x/a patient/deep").mkdir(parents=True)
    work.mkdir()
    publish(staging, ["data/open/x"], work)
    found = sorted(path.relative_to(work).as_posix() for path in (work / "data/open/x").rglob("*"))
    assert found == ["data/open/x/kept", "data/open/x/kept/deep", "data/open/x/kept/deep/file"]


@pytest.mark.parametrize("change", ["in place and back", "another file and back", "a file more for a while"])
def test_a_dep_that_is_changed_while_the_stage_runs_is_noticed(tmp_path: Path, change: str) -> None:
    """Hashes from before the start, and bytes as they were at the end: in between the stage read others."""
    dep = tmp_path / "data/released/release"
    dep.mkdir(parents=True)
    file = dep / "sums"
    file.write_text("released")
    with paths.hold(tmp_path, ["data/released/release"]) as held:
        one = held["data/released/release"]
        before, status = paths.stamps(one), file.stat()
        assert paths.stamps(one) == before, "the control"
        if change == "in place and back":
            file.write_text("records!")
            file.write_text("released")
        elif change == "another file and back":
            file.rename(tmp_path / "kept")
            file.write_text("records!")
            (tmp_path / "kept").rename(file)
        else:
            (dep / "more").write_text("records!")
            (dep / "more").unlink()
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert paths.stamps(one) != before and file.read_text() == "released"


def plant(source: Path, code: str) -> None:
    """A compiled module that Python takes without comparing it with its source."""
    import _imp

    compiled = Path(importlib.util.cache_from_source(str(source)))
    stamp = _imp.source_hash(importlib.util._RAW_MAGIC_NUMBER, source.read_bytes())  # type: ignore[attr-defined]
    compiled.parent.mkdir(exist_ok=True)
    head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + stamp
    compiled.write_bytes(head + marshal.dumps(compile(code, source.name, "exec")))


@pytest.mark.parametrize("where", ["stages/__init__.py", "stages/open/train.py"])
def test_nothing_compiled_is_loaded_behind_the_wall(tmp_path: Path, where: str) -> None:
    for name in ("stages/__init__.py", "stages/open/__init__.py", "stages/open/train.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("WHO = 'the source'\n")
    plant(tmp_path / where, "WHO = 'the planted one'")
    module = where.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
    ask = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from {module} import WHO; print(WHO)"

    def told(first: str) -> str:
        command = [sys.executable, "-B", "-P", "-c", first + ask]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout

    assert told("from airlock.inside import sources; sources.only(); ") == "the source\n"
    assert told("") == "the planted one\n", "the control"


def test_a_module_without_its_source_is_none(tmp_path: Path) -> None:
    (tmp_path / "stages").mkdir()
    (tmp_path / "stages/__init__.py").write_text("")
    (tmp_path / "stages/hidden.py").write_text("WHO = 'compiled'\n")
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-b", str(tmp_path / "stages")], check=True)
    (tmp_path / "stages/hidden.py").unlink()
    ask = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import stages.hidden"

    def ends(first: str) -> int:
        return subprocess.run([sys.executable, "-P", "-c", first + ask], capture_output=True).returncode

    assert ends("from airlock.inside import sources; sources.only(); ") == 1
    assert ends("") == 0, "the control"
