"""`airlock verify`: check a bundle from its bytes to its results, in the order in which each step can be
believed.

It stops at the first step that finds something: what comes after would rest on it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from airlock.bundle import RUNS, check, comparison, container, index, ledgers, rerun
from airlock.bundle.contents import Contents
from airlock.bundle.rerun import Agreement
from airlock.bundle.results import recompute, result
from airlock.bundle.verdict import Verdict, VerifyOptions
from airlock.errors import AirlockError, InputError, KeysError
from airlock.owner.home import Project, project
from airlock.owner.keys import Keyring
from airlock.run.code import ENTRY, MODULES

__all__ = ["Verdict", "VerifyOptions", "verify"]

EVALUATE = "evaluate"
NOT_OF_ITS_FORM = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError)
"""What reading a document raises that is not what it should be."""
Tell = Callable[[str, int, int], None]


def verify(
    bundle: Path,
    options: VerifyOptions,
    *,
    tell: Tell = lambda label, done, total: None,
    collected: bool = False,
) -> Verdict:
    """Check `bundle`, which may be a collection of others unless it was `collected` itself.

    Raises:
        InputError: there is no such file, or a newer Airlock made it.
    """
    verdict = Verdict()
    with tempfile.TemporaryDirectory(prefix="airlock-verify-") as temporary:
        root, aside = Path(temporary) / "bundle", Path(temporary) / "aside"
        root.mkdir()
        aside.mkdir()
        tell("bytes and signature", 0, len(check.CHECKS) + 1)
        found = _collect(lambda: _open(bundle, root, verdict, options), InputError)
        verdict.note("bytes", "every byte is signed by the owner's key", found)
        runs = sorted((root / RUNS).glob("*.zip"))
        if runs and collected:
            verdict.note(
                "runs", "", ["a collection is in a collection, which `airlock bundle` makes none of"]
            )
        elif runs:
            _check_runs(runs, verdict, options, tell)
        else:
            _check_one(Contents(root), aside, verdict, options, tell)
    return verdict


def _check_runs(runs: list[Path], verdict: Verdict, options: VerifyOptions, tell: Tell) -> None:
    """Each bundle of a collection, all signed by the key that signed the collection."""
    for run in runs:
        if not verdict.problems:
            same = replace(options, key=verdict.facts["key"])
            verdict.take(run.stem, verify(run, same, tell=tell, collected=True))


def _check_one(contents: Contents, aside: Path, verdict: Verdict, options: VerifyOptions, tell: Tell) -> None:
    for done, (name, (problems, words)) in enumerate(check.CHECKS.items(), start=1):
        if not verdict.problems:
            tell(name, done, len(check.CHECKS) + 1)
            verdict.note(name, words, _collect(lambda problems=problems: problems(contents)))  # type: ignore[misc]
    if not verdict.problems:
        if found := _collect(lambda: _figures(contents, verdict)):
            verdict.note("figures", "", found)
            return
        _run_again(contents, aside, options, verdict, tell)


def _figures(contents: Contents, verdict: Verdict) -> Iterator[str]:
    """Everything that is shown beside the checks; it finds nothing but what is not of its form."""
    verdict.guarantees = ledgers.recompute(contents)
    verdict.results = [row for row in (result(contents, str(verdict.facts["commit"])),) if row]
    verdict.totals = ledgers.totals_of(contents)
    verdict.hidden = sum(len(extract.hidden) for extract in contents.extracts.values())
    verdict.unknown = sum(len(extract.unknown) for extract in contents.extracts.values())
    yield from ()


def _open(bundle: Path, root: Path, verdict: Verdict, options: VerifyOptions) -> Iterator[str]:
    container.unpack(bundle, root)
    facts = index.read(root)
    verdict.facts = {name: value for name, value in facts.items() if name != "files"}
    if options.key and options.key != facts["key"]:
        yield f"the bundle is signed by the key {facts['key']}, not by {options.key}"
    if not (root / RUNS).is_dir() and (problem := index.owner_problem(root, facts["key"])):
        yield problem


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
    except (*NOT_OF_ITS_FORM, OSError) as error:
        return [_form(error)]


def _form(error: Exception) -> str:
    return (
        f"a document in the bundle is not of its form ({type(error).__name__}): `airlock bundle` did "
        "not write it so"
    )


def _run_again(contents: Contents, aside: Path, options: VerifyOptions, verdict: Verdict, tell: Tell) -> None:
    code = rerun.code_of(contents, verdict.facts)
    if options.own_code:
        rerun.use_own_code(contents, options.own_code)
        code = rerun.code_of(contents, {"entry": ENTRY, "modules": MODULES})
    if options.records:
        owner = _owner(options.records, verdict)
        _compare(verdict, contents, "release", rerun.remake(contents, code, options.records, owner), tell)
    if not options.quick and not verdict.problems:
        _compare(verdict, contents, "open", rerun.rerun(contents, code, aside), tell)
        if EVALUATE in {found.stage for found in verdict.agreements}:
            verdict.problems += _collect(lambda: _recomputed(contents, verdict))


def _recomputed(contents: Contents, verdict: Verdict) -> Iterator[str]:
    verdict.results = [recompute(contents, row) for row in verdict.results]
    yield from ()


def _owner(workspace: Path, verdict: Verdict) -> Project:
    """The owner's home; a stranger's code is never given the owner's keys, not even behind the wall."""
    place = project(workspace)
    if Keyring.load(place).signer.public_key.hex() != verdict.facts["key"]:
        raise KeysError(
            "--with-records checks your own bundles only: this one "
            "is signed by another key than this project's"
        )
    return place


def _compare(
    verdict: Verdict, contents: Contents, zone: str, agreements: Iterator[Agreement], tell: Tell
) -> None:
    names = [stage.name for stage in contents.stages(zone)]
    for done, name in enumerate(names):
        tell(f"{name} again", done, len(names))
        try:
            found = next(agreements)
        except NOT_OF_ITS_FORM as error:
            verdict.note(f"{name} again", "", [_form(error)])
            return
        except AirlockError as error:
            if zone == "release" and isinstance(error, InputError):
                raise  # keys or sealed records are not here: nothing is wrong with the bundle
            # The log that a failed stage leaves is in a folder that is gone after this.
            verdict.note(
                f"{name} again",
                "",
                [f"stage '{name}' could not be run again: {str(error).split(': see the owner')[0]}"],
            )
            return
        verdict.agreements.append(found)
        where = (
            ""
            if found.alike
            else f"; its receipt states another machine ({found.machine}): {comparison.TOLERANCE}"
        )
        verdict.note(f"{name} again", found.verdict + where, [found.problem] if found.problem else [])
