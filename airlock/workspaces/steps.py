"""The pipeline from Python: `airlock.plan`, `airlock.release`, `airlock.train`.

Each does what its command does: parameters are written to params.yaml, DVC decides what is stale, and every stage
runs in a process of its own behind the wall. Nothing of `stages` is imported here, and no record comes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airlock.errors import StageFailed

if TYPE_CHECKING:
    from airlock.api import Model
    from airlock.run.budget import Price

RELEASE, MODEL = "data/released/release", "data/model"
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Plan:
    """What a release would cost; no record was read for it.

    Attributes:
        population: whose records.
        releases: each out of the pipeline, with its own epsilon; None where nothing more is charged.
        spent: epsilon so far, at `delta`.
        total: epsilon with these releases.
        cap: what the owner allows; None where no cap is set.
        delta: that all of it is meant at.
        refusal: why it may not be made, or None.
    """

    population: str
    releases: tuple[Price, ...]
    spent: float
    total: float
    cap: float | None
    delta: float
    refusal: str | None

    @property
    def fits(self) -> bool:
        """Whether it may be made."""
        return self.refusal is None


@dataclass(frozen=True)
class Released:
    """A release that is here.

    Attributes:
        path: its folder.
        id: the same question has the same id, and is never charged twice.
        mechanism: by name.
        epsilon, delta: proven for these very bytes.
        passes: over the records.
    """

    path: Path
    id: str
    mechanism: str
    epsilon: float
    delta: float
    passes: int


def plan(settings: Settings | None = None, *, workspace: str | Path = ".") -> Plan:
    """Price what params.yaml would release, with some of its values changed.

    Args:
        settings: such as `{"release.epsilon": 0.5}`; the file itself stays as it is.
        workspace: the project's top folder.

    Raises:
        InputError: there is no such parameter, data set or workspace.
    """
    from airlock.owner.home import project
    from airlock.params import load_params
    from airlock.run import budget

    root = Path(workspace).resolve()
    point = budget.price(project(root), root, load_params(root / "params.yaml"), [dict(settings or {})])[0]
    quote = point.quote
    return Plan(
        population=quote.account.population,
        releases=point.prices,
        spent=quote.before,
        total=quote.together,
        cap=quote.account.cap.epsilon if quote.account.cap else None,
        delta=quote.delta,
        refusal=point.objection,
    )


def release(settings: Settings | None = None, *, workspace: str | Path = ".") -> Released:
    """Make what params.yaml asks for, after changing some of its values; one that was made is replayed for free.

    Raises:
        StageFailed: a stage failed or the ledger refused, with its own line; params.yaml is as it was.
    """
    from airlock.inside import manifest

    root = Path(workspace).resolve()
    _make("release", settings, root)
    found = manifest.load(root / RELEASE)
    return Released(
        path=root / RELEASE,
        id=found.release_id,
        mechanism=found.mechanism,
        epsilon=found.proven.epsilon,
        delta=found.proven.delta,
        passes=found.passes,
    )


def train(settings: Settings | None = None, *, workspace: str | Path = ".") -> Model:
    """Train on the release, after changing some values of params.yaml; it costs nothing, however often.

    Raises:
        StageFailed: a stage failed, with its own line; params.yaml is as it was.
    """
    from airlock.api import Model

    root = Path(workspace).resolve()
    _make("train", settings, root)
    return Model.load(root / MODEL)


def _make(stage: str, settings: Settings | None, root: Path) -> None:
    from airlock.owner.home import project

    project(root)  # or it is no workspace
    with _changed(settings or {}, root):
        _reproduce(stage, root)


@contextmanager
def _changed(settings: Settings, root: Path) -> Iterator[None]:
    """params.yaml with some values changed; as it was if the block fails, or its process is killed."""
    from airlock.run import param_changes

    if not settings:
        yield
        return
    with param_changes.turn(root), param_changes.changed(root, _text_with(settings, root), stays=True):
        yield


def set_params(root: Path, settings: Settings) -> None:
    """Change values of params.yaml and keep its comments.

    Raises:
        ParamsError: the result is not valid; then nothing is written.
    """
    from airlock.run import param_changes

    param_changes.write(root, _text_with(settings, root))


def _text_with(settings: Settings, root: Path) -> str:
    from airlock.params import load_params, parse_params
    from airlock.run import param_changes
    from airlock.run.budget import override

    override(load_params(root / "params.yaml"), settings)
    text = param_changes.text_with(root, settings)
    parse_params(text)
    return text


def _reproduce(stage: str, root: Path) -> None:
    """Run DVC, quietly; a failure is the stage's own line."""
    from airlock.run import dvc, leftovers

    leftovers.sweep_workspace(root)
    done = dvc.run(root, "repro", stage, quiet=True)
    if done.returncode != 0:
        raise StageFailed(_line(done.stderr + done.stdout) or f"`dvc repro {stage}` failed")


def _line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    ours = [line.removeprefix("airlock: ") for line in lines if line.startswith("airlock: ")]
    theirs = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (ours or theirs or [""])[0]
