"""What interactive mechanisms share: keyed samples and noise for each step, and a walk that can stop and go
on.

Samples and noise of a step depend on the key, the release id, the step and (noise) the exact bytes of the
sum, never on how the walk came there. So a run that was resumed, or begun again, draws the same samples and
ends in the same bytes; no stream serves two sums, and the ledger, which charged the release before the first
read, has nothing to charge again. A checkpoint holds functions of noisy sums only: accounting covers every
iterate, not just the last. "Same bytes" is for one machine and number of threads: where sums round
differently they get fresh noise, so a checkpoint of a run that was begun again elsewhere must not be
published beside its release.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from airlock.errors import ParamsError
from airlock.params import Params
from airlock.privacy import calibration, noise
from airlock.privacy.guarantees import Neighbours
from airlock.privacy.plan import Facts
from stages.checkpoints import Checkpoint
from stages.mechanisms import Given, Make, Released, Tick, makes, silent
from stages.release.keyed_noise import KeyedNoise
from stages.release.units import check_alone, check_record

if TYPE_CHECKING:
    from torch import Tensor

    from stages.release.papers.dp_sgd.dp_sgd import Data

State = dict[str, "Tensor"]
CHECKPOINT_STEPS = 100


class Keyed(KeyedNoise):
    """The randomness of an interactive release, as tensors."""

    def sample(self, step: int, rate: float, count: int) -> Tensor:
        """Rows of a Poisson sample."""
        import torch

        stream = self.named_stream(step + 1, "sample")
        return torch.from_numpy(np.flatnonzero(noise.poisson_sample(stream, rate, count)))

    def gaussian(self, step: int, purpose: str, total: Tensor, scale: float | Tensor) -> Tensor:
        """Standard normal noise of a sum's shape, for that sum alone, which gets `scale` times it."""
        import torch

        drawn = self.standard(step, purpose, total, scale)
        return torch.from_numpy(drawn).to(dtype=total.dtype, device=total.device)

    def standard(self, step: int, purpose: str, total: Tensor, scale: float | Tensor) -> Any:
        """The same as doubles."""
        size = scale if isinstance(scale, float) else scale.detach().double().cpu().numpy()
        exact = total.detach().cpu().numpy()
        return noise.float_gaussian_for(exact, size, self.stream(step, purpose, total))

    def stream(self, step: int, purpose: str, total: Tensor) -> noise.Stream:
        """The stream of one sum; that of another sum is another, whatever else is the same."""
        digest = hashlib.sha256(total.detach().cpu().contiguous().numpy().tobytes()).digest()
        return self.named_stream(step + 1, purpose, digest)


@dataclass(frozen=True)
class Course:
    """How one release is trained, whatever the mechanism: its randomness, where it may stop and go on, who is
    told how far it is.
    """

    keyed: Keyed
    checkpoint: Path | None = None
    tick: Tick = silent

    def walk(self, start: State, advance: Callable[[int, State], State], count: int) -> State:
        """`walk`, with all of this."""
        return walk(
            start,
            advance,
            steps=count,
            identity=self.keyed.release_id,
            checkpoint=self.checkpoint,
            tick=self.tick,
        )


def maker(
    train: Callable[[Params, Facts, Data, Course], Released], resolve: Callable[[Params, Facts], Any]
) -> Make:
    """A mechanism's `make`: all records in memory, for they are read again and again, and `train` on them.

    Before the first is read, `resolve` refuses what is not offered.
    """

    @makes
    def make(given: Given) -> Released:
        """Tensors and details of the release."""
        from stages.release.papers.dp_sgd.dp_sgd import load

        resolve(given.params, given.facts)
        course = Course(Keyed(given.key, given.release_id), given.checkpoint, given.tick)
        return train(given.params, given.facts, load(given.reader, given.facts), course)

    return make


def walk(
    start: State,
    advance: Callable[[int, State], State],
    *,
    steps: int,
    identity: str,
    checkpoint: Path | None = None,
    tick: Tick = silent,
) -> State:
    """Take `steps` steps from `start`, or go on from the checkpoint.

    Args:
        start: the first state, which depends on no record.
        advance: from a step's number and a state to the next state; the same arguments give the same bytes.
        steps: how many.
        identity: of the release; a checkpoint of another is left alone.
        checkpoint: a folder to keep the state in.
        tick: told how far it is, about a hundred times.
    """
    keeper = Checkpoint(checkpoint, identity)
    first, kept = keeper.resume() or (0, start)
    if kept.keys() != start.keys():
        # Of an earlier version, which kept less: begun again, it draws the same.
        first, kept = 0, start
    state = {name: kept[name].to(one.device) for name, one in start.items()}
    for step in range(first, steps):
        if step % max(1, steps // 100) == 0:
            tick(step, steps)
        state = advance(step, state)
        if (step + 1) % CHECKPOINT_STEPS == 0:
            keeper.keep(step + 1, state)
    tick(steps, steps)
    return state


def check_unit(params: Params, facts: Facts, name: str) -> None:
    """Interactive mechanisms protect records one by one and run on one machine.

    Raises:
        ParamsError: something else is asked for.
    """
    check_record(params, name)
    check_alone(params, facts, name)


def multiplier_of(epsilon: float, delta: float, *, rate: float, steps: int, neighbours: Neighbours) -> float:
    """The least noise, over sensitivity, at which so many sampled steps are (epsilon, delta)-DP.

    Raises:
        ParamsError: there is none.
    """
    try:
        return calibration.sampled_gaussian_multiplier(
            epsilon, delta, rate=rate, steps=steps, neighbours=neighbours
        )
    except ValueError as error:
        raise ParamsError(f"params.yaml: release: {error}") from None


def sampled(rate: float, steps: int, multiplier: float) -> dict[str, Any]:
    """So many Poisson-sampled Gaussian steps, as an event."""
    one = {
        "kind": "poisson-sampled",
        "sampling_probability": rate,
        "event": {"kind": "gaussian", "noise_multiplier": multiplier},
    }
    return {"kind": "self-composed", "count": steps, "event": one}
