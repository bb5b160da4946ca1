"""The likelihood ratio of a whole release of noisy sums, one after another, each of which may depend on those
before.

`Transcript` writes down every exact sum and its noise while a release is made; with a script, it makes the
release of the neighbouring data set in a world where the same noisy sums came out, and writes down its exact
sums. The log likelihood ratio is then a plain sum. An adversary who knows both data sets can do the same with
the noisy sums alone, and the proofs price all of them as seen. Where records are sampled that is not so: who
is in a sample is a secret that the ratio would use, so a sampled release has none (`Transcript.sampled`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.privacy import noise

Numbers = NDArray[Any]
GRID = ("gaussian", "laplace", "symmetric_gaussian", "laplace_by_column")
# Laplace reaches are rounded down to so many significant bits, so that few kinds of them are composed.
BITS = 10


@dataclass(frozen=True)
class NoisyAnswer:
    """One noisy sum: what it was exactly, what came out, and by what noise."""

    exact: Numbers
    noisy: Numbers
    scale: float | Numbers
    form: str

    @property
    def pure(self) -> bool:
        """Whether its noise is Laplace noise."""
        return "laplace" in self.form


class Enough(Exception):
    """Every sum of the script is known: what the release would do next is of no interest."""


@dataclass
class Transcript:
    """The noisy sums of one release, in order.

    With a `script`, noise is such that those of the script come out again.

    Attributes:
        brief: end the release with the script's last sum.
        sampled: whether records were taken by a coin that is not released.
        idealised: whether a sum got float noise, of which the release rounds away digits that are written down here.
    """

    answers: list[NoisyAnswer] = field(default_factory=list)
    script: Sequence[NoisyAnswer] | None = None
    brief: bool = False
    sampled: bool = False
    idealised: bool = False

    def next_noise(self, exact: Numbers, scale: float | Numbers, form: str, drawn: Any) -> Numbers:
        """The noise of the next sum, drawn or as the script wants it."""
        place = len(self.answers)
        if self.script is None:
            noisy = exact + drawn()
        elif place < len(self.script) and self.script[place].noisy.shape == exact.shape:
            noisy = self.script[place].noisy
        else:
            raise ValueError("the neighbouring data set asks for other sums: their number is no secret")
        self.answers.append(NoisyAnswer(exact.copy(), noisy, scale, form))
        if self.brief and self.script is not None and len(self.answers) == len(self.script):
            raise Enough
        added: Numbers = noisy - exact
        return added


@contextmanager
def writing(transcript: Transcript) -> Iterator[Transcript]:
    """Every noisy sum is written down, as long as this lasts: those of `noise.add_noise`, of
    `noise.add_laplace_by_column` and, for interactive mechanisms, of `noise.float_gaussian_for`.

    Noise that is drawn by other ways is left alone.
    """
    kept = {name: getattr(noise, name) for name in (*GRID, "digest", "float_gaussian_for", "poisson_sample")}
    waiting: list[tuple[Numbers, str]] = []

    def digest(total: Numbers, scale: float, form: str) -> bytes:
        waiting.append((total, form.replace("-", "_").replace(" ", "_")))
        found: bytes = kept["digest"](total, scale, form)
        return found

    def drawing(name: str) -> Any:
        def draw(stream: noise.Stream, scale: Any, shape: Any) -> Numbers:
            if not waiting or waiting[-1][1] != name:
                drawn: Numbers = kept[name](
                    stream, scale, shape
                )  # a part of another draw, or of no sum at all
                return drawn
            exact, form = waiting.pop()
            return transcript.next_noise(exact, scale, form, lambda: kept[name](stream, scale, shape))

        return draw

    def floats(total: Numbers, scale: Any, stream: noise.Stream) -> Numbers:
        exact = total.astype(np.float64)
        transcript.idealised = True
        drawn = transcript.next_noise(
            exact,
            scale,
            "gaussian",
            lambda: _finite(scale) * kept["float_gaussian_for"](total, scale, stream),
        )
        return np.asarray(drawn / _finite(scale))

    def sample(stream: noise.Stream, rate: float, count: int) -> Numbers:
        transcript.sampled |= 0 < rate < 1
        chosen: Numbers = kept["poisson_sample"](stream, rate, count)
        return chosen

    try:
        replaced = {name: drawing(name) for name in GRID}
        replaced |= {"digest": digest, "float_gaussian_for": floats, "poisson_sample": sample}
        for name, function in replaced.items():
            setattr(noise, name, function)
        yield transcript
    finally:
        for name, function in kept.items():
            setattr(noise, name, function)


def _finite(scale: Any) -> Any:
    """An infinite scale belongs to a draw that is thrown away: any size will do."""
    return np.where(np.isinf(scale), 1.0, scale)


def log_ratio(present: Sequence[NoisyAnswer], absent: Sequence[NoisyAnswer]) -> float:
    """Log likelihood of the noisy sums with the record, less without it; 0 for sums that both data sets have
    alike.
    """
    return float(sum(_loss(one) - _loss(other) for other, one in zip(present, absent, strict=True)))


@dataclass(frozen=True)
class Distance:
    """How far apart the exact sums of two data sets are, in units of their noise.

    Attributes:
        mu: of all sums with Gaussian noise together.
        reaches: of every number with Laplace noise that differs.
    """

    mu: float
    reaches: tuple[float, ...] = ()

    @property
    def size(self) -> float:
        """One number to rank pairs by: a Laplace law of reach r is about as far apart as a Gaussian of shift
        r.
        """
        return float(np.sqrt(self.mu**2 + np.square(self.reaches).sum()))

    def epsilon(self, delta: float) -> float:
        """Epsilon at delta, from below."""
        from airlock.privacy import accounting, events

        if self.mu == 0 and delta == 0:
            return float(sum(self.reaches))
        parts = (
            [events.from_json({"kind": "gaussian", "noise_multiplier": 1 / self.mu})] if self.mu > 0 else []
        )
        alike = Counter(_round_down(one) for one in self.reaches)
        for reach, count in sorted(alike.items()):
            laplace = {"kind": "laplace", "noise_multiplier": 1 / reach}
            parts.append(events.from_json({"kind": "self-composed", "count": count, "event": laplace}))
        return accounting.least_epsilon(events.compose(parts), delta) if parts else 0.0


def distance(present: Sequence[NoisyAnswer], absent: Sequence[NoisyAnswer]) -> Distance:
    """Between two transcripts of which one is the other's script."""
    pairs = [
        pair for pair in zip(present, absent, strict=False) if pair[0].exact.shape == pair[1].exact.shape
    ]
    apart = [(one.pure, (np.abs(one.exact - two.exact) / one.scale).ravel()) for one, two in pairs]
    square = sum(float((moved.astype(np.float64) ** 2).sum()) for pure, moved in apart if not pure)
    reaches = [float(one) for pure, moved in apart if pure for one in moved[moved > 0]]
    return Distance(float(np.sqrt(square)), tuple(sorted(reaches)))


def _round_down(value: float) -> float:
    fraction, exponent = np.frexp(value)
    return float(np.ldexp(np.floor(fraction * 2**BITS) / 2**BITS, exponent))


def _loss(answer: NoisyAnswer) -> float:
    """Minus the log density of the noise, but for a constant."""
    size = np.abs((answer.noisy - answer.exact).astype(np.float64)) / answer.scale
    # A symmetric matrix has its off-diagonal noise once and with half the variance: the sum over all entries
    # is the same.
    return float(size.sum() if answer.pure else (size**2).sum() / 2)
