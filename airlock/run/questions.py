"""Questions to the code of the stages: asked behind the wall, without a dep, a key or the ledger; answered in
JSON.

What an analyst can edit never runs beside the keys. So the price of a release is computed in a sandbox of its
own, and what comes back is checked here, field by field, before the broker believes any of it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from airlock.errors import ReleaseError, StageFailed
from airlock.inside.digests import canonical_json
from airlock.owner.home import Project, canary
from airlock.params import Params
from airlock.privacy import events
from airlock.privacy.plan import Facts, Plan
from airlock.run import code as tool
from airlock.run import limits
from airlock.run.handover import Listener, Visit, confine, memory_folder
from airlock.run.outs import remove
from airlock.run.paths import hold, hold_file, hold_folder
from airlock.wall.grants import Held
from airlock.wall.layers import Layer, choose

PRICING = "stages.pricing"
EVALUATION = "stages.release.evaluate_private"
ENCODERS, MODEL = "data/encoders", "data/model"
_WRITTEN = "/.airlock/written"


def ask(
    module: str,
    question: Mapping[str, Any],
    *,
    params: Params,
    workspace: Path,
    project: Project,
    function: str = "answer",
    reads: Sequence[Path] = (),
    deps: Sequence[str] = (),
    writes: Mapping[str, Path] | None = None,
    zone: str = "release",
    listen: Listener = lambda event: None,
) -> Any:
    """What `module.function(room)` returns, run confined; `question` stands in `room.facts`.

    Args:
        reads, deps: what it may read besides the stages' code: paths from anywhere, and names below the
            workspace.
        writes: folders of the runner's own, made here, that it may write to.

    Raises:
        StageFailed: it ended with an error, or gave no answer.
    """
    answers: list[Any] = []

    def hear(event: Mapping[str, Any]) -> None:
        if event["kind"] == "answer":
            answers.append(event["answer"])
        else:
            listen(event)

    code = tool.of_workspace(workspace)
    scratch = Path(tempfile.mkdtemp(prefix=f"airlock-{os.getpid()}-", dir=memory_folder()))
    with ExitStack() as stack:
        stack.callback(remove, scratch)
        held = stack.enter_context(hold(workspace, (*code.stages, *deps)))
        given = {str(path): stack.enter_context(hold_file(path)) for path in reads}
        given |= {name: held.pop(name) for name in deps}
        written: dict[str, Held] = {}
        for number, (name, folder) in enumerate((writes or {}).items()):
            folder.mkdir(parents=True, exist_ok=True)
            written[name] = stack.enter_context(hold_folder(folder, f"{_WRITTEN}-{number}"))
        layers = choose(params.boundary.enforcement, zone=zone)
        places = {name: one.path for name, one in given.items()}
        places |= {name: one.inside(new_root=Layer.ROOT in layers) for name, one in written.items()}
        visit = Visit(
            stage=module.rpartition(".")[2],
            zone=zone,
            module=module,
            function=function,
            code=code,
            params=params,
            paths=places,
            reads=(*held.values(), *given.values()),
            writes=tuple(written.values()),
            scratch=scratch,
            limits=limits.of(params.boundary),
            facts=question,
            insist=params.boundary.enforcement == "strict",
        )
        confine(
            visit,
            project=project,
            workspace=workspace,
            layers=layers,
            canary=canary(project),
            listen=hear,
        )
    if len(answers) != 1:
        raise StageFailed(f"{module}.{function} gave {len(answers)} answers instead of one")
    return answers[0]


@dataclass(frozen=True)
class Pricing:
    """One question: what would these stages release, with these parameters, of records with these public
    facts?
    """

    stages: tuple[str, ...]
    params: Params
    facts: Facts

    def to_json(self) -> dict[str, Any]:
        """As the confined code is asked."""
        return {
            "stages": {name: tool.MODULES[name] for name in self.stages},
            "params": self.params.model_dump(mode="json"),
            "facts": asdict(self.facts),
        }

    def about(self, stage: str) -> Pricing:
        """The same question about one stage alone."""
        return replace(self, stages=(stage,))

    def key(self, workspace: Path) -> bytes:
        """What tells it from other questions."""
        return canonical_json([str(workspace), self.to_json()])


Plans = Mapping[str, Mapping[str, Plan]]
_known: dict[bytes, Plans] = {}


def plans(asked: Sequence[Pricing], *, workspace: Path, project: Project) -> list[Plans]:
    """For each question, stage to out to plan.

    No stage is asked the same twice in one command: whether the whole pipeline fits, and what one stage of it costs,
    is one question to that stage.
    """
    alone = [one.about(stage) for one in asked for stage in one.stages]
    missing = {key: one for one in alone if (key := one.key(workspace)) not in _known}
    if missing:
        questions = [one.to_json() for one in missing.values()]
        params = next(iter(missing.values())).params
        answers = ask(PRICING, {"questions": questions}, params=params, workspace=workspace, project=project)
        if not isinstance(answers, list) or len(answers) != len(questions):
            raise ReleaseError(
                "stages/release did not answer what its releases would cost: look at its `plans`"
            )
        for (key, one), answer in zip(missing.items(), answers, strict=True):
            _known[key] = _checked(one.stages, answer)
    return [{stage: _known[one.about(stage).key(workspace)][stage] for stage in one.stages} for one in asked]


def check_device(params: Params, *, workspace: Path, project: Project) -> None:
    """Refuse a device that this machine does not have, before anything is reserved for what would run on it.

    A plan does not say so: prices are the same everywhere, and what was made is replayed anywhere.

    Raises:
        StageFailed: with the fix.
    """
    device = params.release.options.get("device", "auto")
    if device not in ("auto", "cpu"):
        asked = {"device": device}
        ask(PRICING, asked, params=params, workspace=workspace, project=project, function="check_device")


def check_encoder(
    priced: Sequence[Plan], facts: Facts, params: Params, *, workspace: Path, project: Project
) -> None:
    """Refuse an encoder that is not here or cannot be used, before anything is reserved for what would run through it.

    Raises:
        StageFailed: with the fix.
    """
    values = [value for plan in priced for value in plan.parameters.values() if isinstance(value, str)]
    for name in sorted({value for value in values if value.startswith("onnx:")}):
        asked = {"encoder": name, "shape": list(facts.shape)}
        ask(
            PRICING,
            asked,
            params=params,
            workspace=workspace,
            project=project,
            function="check_encoder",
            deps=[ENCODERS],
        )


def check_model(facts: Facts, params: Params, *, workspace: Path, project: Project) -> None:
    """Refuse a model that is not for such records, before anything is reserved for judging it.

    Raises:
        StageFailed: with the fix.
    """
    ask(
        EVALUATION,
        {"facts": asdict(facts)},
        params=params,
        workspace=workspace,
        project=project,
        function="check_model",
        deps=[MODEL],
    )


def _checked(stages: Sequence[str], answer: Any) -> Plans:
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        priced = {
            stage: {str(out): Plan.from_json(document) for out, document in answer[stage].items()}
            for stage in stages
        }
        for plan in (plan for found in priced.values() for plan in found.values()):
            if plan.proven.event is not None:
                events.from_json(plan.proven.event)
        return priced
    raise ReleaseError(
        f"'{', '.join(stages)}' priced its releases in a form that cannot be read: look at its `plans`"
    )
