"""`airlock verify`: check a bundle from its bytes to its results, in the order in which each step can be believed.

It stops at the first step that finds something: what comes after would rest on it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stages.boundary.home import Project, project
from stages.boundary.keys import Keyring
from stages.bundle import books, check, comparison, container, index, rerun
from stages.bundle.contents import Contents
from stages.bundle.rerun import Agreement
from stages.errors import AirlockError, InputError, KeysError

Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Options:
    """What to check, and how far.

    Attributes:
        quick: run nothing again.
        installed_code: run the installed Airlock's stages instead of the bundle's.
        records: the owner's workspace, to make the releases again too.
        key: the owner's public key in hexadecimal, if the reader knows it.
    """

    quick: bool = False
    installed_code: bool = False
    records: Path | None = None
    key: str | None = None


@dataclass(frozen=True)
class Step:
    """One row of the summary."""

    name: str
    holds: bool
    words: str


@dataclass
class Verdict:
    """Everything that was found. The bundle verifies if there is no problem."""

    facts: dict[str, Any] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    guarantees: list[books.Recomputed] = field(default_factory=list)
    agreements: list[Agreement] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    hidden: int = 0

    def note(self, name: str, words: str, problems: Iterable[str] = ()) -> None:
        """Add a step and what it found."""
        found = list(problems)
        self.steps.append(Step(name, not found, found[0] if found else words))
        self.problems += found


def verify(bundle: Path, options: Options, *, tell: Tell = lambda label, done, total: None) -> Verdict:
    """Check `bundle`.

    Raises:
        InputError: there is no such file, or a newer Airlock made it.
    """
    verdict, total = Verdict(), len(check.CHECKS) + 1
    with tempfile.TemporaryDirectory(prefix="airlock-verify-") as temporary:
        root, aside = Path(temporary) / "bundle", Path(temporary) / "aside"
        root.mkdir()
        aside.mkdir()
        contents = Contents(root)
        tell("bytes and signature", 0, total)
        verdict.note(
            "bytes", "every byte is signed by the owner's key", _collect(lambda: _open(bundle, root, verdict, options), InputError)
        )
        for done, (name, (problems, words)) in enumerate(check.CHECKS.items(), start=1):
            if not verdict.problems:
                tell(name, done, total)
                verdict.note(name, words, _collect(lambda problems=problems: problems(contents)))  # type: ignore[misc]
        if not verdict.problems:
            verdict.guarantees, verdict.metrics = books.recompute(contents), contents.metrics
            verdict.hidden = sum(len(extract.entries) - len(extract.visible) for extract in contents.extracts.values())
            _run_again(contents, aside, options, verdict, tell)
    return verdict


def _open(bundle: Path, root: Path, verdict: Verdict, options: Options) -> Iterator[str]:
    container.unpack(bundle, root)
    facts = index.read(root)
    verdict.facts = {name: value for name, value in facts.items() if name != "files"}
    if options.key and options.key != facts["key"]:
        yield f"the bundle is signed by the key {facts['key']}, not by the one that you named"


def _collect(problems: Callable[[], Iterable[str]], *questions: type[AirlockError]) -> list[str]:
    """All problems of a step. What cannot even be read is one, however it fails: a stranger wrote it.

    Args:
        problems: the step.
        questions: errors that say something about the question and nothing about the bundle.
    """
    try:
        return list(problems())
    except questions:
        raise
    except AirlockError as error:
        return [str(error)]
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        return [f"a document in the bundle is not of its form ({type(error).__name__}): `airlock bundle` did not write it so"]


def _run_again(contents: Contents, aside: Path, options: Options, verdict: Verdict, tell: Tell) -> None:
    if options.installed_code:
        rerun.use_installed_code(contents)
    if options.records:
        owner = _owner(options.records, verdict)
        _compare(verdict, contents, "release", rerun.remake(contents, options.records, owner), tell)
    if not options.quick and not verdict.problems:
        _compare(verdict, contents, "open", rerun.rerun(contents, aside), tell)


def _owner(workspace: Path, verdict: Verdict) -> Project:
    """The owner's home; a stranger's code is never given the owner's keys, not even behind the wall."""
    place = project(workspace)
    if Keyring.load(place).signer.public_key.hex() != verdict.facts["key"]:
        raise KeysError("--with-records checks your own bundles only: this one is signed by another key than this project's")
    return place


def _compare(verdict: Verdict, contents: Contents, zone: str, agreements: Iterator[Agreement], tell: Tell) -> None:
    names = [stage.name for stage in contents.stages(zone)]
    for done, name in enumerate(names):
        tell(f"{name} again", done, len(names))
        try:
            found = next(agreements)
        except AirlockError as error:
            if zone == "release" and isinstance(error, InputError):
                raise  # keys or sealed records are not here: nothing is wrong with the bundle
            # The log that a failed stage leaves is in a folder that is gone after this.
            verdict.note(f"{name} again", "", [f"stage '{name}' could not be run again: {str(error).split(': see the owner')[0]}"])
            return
        verdict.agreements.append(found)
        where = "" if found.alike else f"; another kind of machine: {comparison.TOLERANCE}"
        verdict.note(f"{name} again", found.verdict + where, [found.problem] if found.problem else [])
