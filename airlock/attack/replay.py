"""The likelihood ratio of a whole release of noisy sums, one after another, each of which may depend on those
before.

`Transcript` writes down every exact sum and its noise while a release is made; `replayed` makes the release
of the neighbouring data set in a world where the same noisy sums came out, and writes down its exact sums.
The log likelihood ratio is then a plain sum. An adversary who knows both data sets can do the same with the
noisy sums alone, and the proofs price all of them as seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.privacy import noise

Integers = NDArray[np.int64]
FORMS = ("gaussian", "laplace", "symmetric_gaussian")


@dataclass(frozen=True)
class NoisyAnswer:
    """One noisy sum: what it was exactly, what came out, and by what noise."""

    exact: Integers
    noisy: Integers
    scale: float
    form: str


@dataclass
class Transcript:
    """The noisy sums of one release, in order.

    With a `script`, noise is such that those of the script come out again.
    """

    answers: list[NoisyAnswer] = field(default_factory=list)
    script: list[NoisyAnswer] | None = None

    def next_noise(self, exact: Integers, scale: float, form: str, drawn: Any) -> Integers:
        """The noise of the next sum, drawn or as the script wants it."""
        place = len(self.answers)
        if self.script is None:
            noisy = exact + drawn()
        elif place < len(self.script) and self.script[place].noisy.shape == exact.shape:
            noisy = self.script[place].noisy
        else:
            raise ValueError("the neighbouring data set asks for other sums: their number is no secret")
        self.answers.append(NoisyAnswer(exact.copy(), noisy, scale, form))
        added: Integers = noisy - exact
        return added


@contextmanager
def writing(transcript: Transcript) -> Iterator[Transcript]:
    """Every `noise.add_noise` is written down, as long as this lasts.

    Noise that is drawn by other ways is left alone.
    """
    kept = {name: getattr(noise, name) for name in (*FORMS, "digest")}
    waiting: list[tuple[Integers, float, str]] = []

    def digest(total: Integers, scale: float, form: str) -> bytes:
        waiting.append((total, scale, form))
        found: bytes = kept["digest"](total, scale, form)
        return found

    def drawing(name: str) -> Any:
        def draw(stream: noise.Stream, scale: float, shape: Any) -> Integers:
            if not waiting or waiting[-1][2].replace("-", "_") != name:
                drawn: Integers = kept[name](
                    stream, scale, shape
                )  # a part of a symmetric draw, or of no sum at all
                return drawn
            exact, asked, form = waiting.pop()
            return transcript.next_noise(exact, asked, form, lambda: kept[name](stream, scale, shape))

        return draw

    try:
        noise.digest = digest
        for name in FORMS:
            setattr(noise, name, drawing(name))
        yield transcript
    finally:
        for name, function in kept.items():
            setattr(noise, name, function)


def log_ratio(present: list[NoisyAnswer], absent: list[NoisyAnswer]) -> float:
    """Log likelihood of the noisy sums with the record, less without it; 0 for sums that both data sets have
    alike.
    """
    return float(sum(_loss(one) - _loss(other) for other, one in zip(present, absent, strict=True)))


def distance(present: list[NoisyAnswer], absent: list[NoisyAnswer]) -> float:
    """How far apart two transcripts' exact sums are, in units of their noise: mu, where all noise is
    Gaussian.
    """
    pairs = [
        pair for pair in zip(present, absent, strict=False) if pair[0].exact.shape == pair[1].exact.shape
    ]
    return float(
        np.sqrt(sum(float((((one.exact - two.exact) / one.scale) ** 2).sum()) for one, two in pairs))
    )


def _loss(answer: NoisyAnswer) -> float:
    """Minus the log density of the noise, but for a constant."""
    size = np.abs((answer.noisy - answer.exact).astype(np.float64)) / answer.scale
    if answer.form == "laplace":
        return float(size.sum())
    # A symmetric matrix has its off-diagonal noise once and with half the variance: the sum over all entries
    # is the same.
    return float((size**2).sum() / 2)
