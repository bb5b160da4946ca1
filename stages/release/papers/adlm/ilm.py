"""`ilm`: AdLM with the same noise on every input (Phan et al., Appendix C).

It needs no relevance; see stages/release/papers/adlm/adlm.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airlock.params import Params
from airlock.privacy.plan import Facts, Plan
from stages.mechanisms import Given, Released, makes, makes_nothing, no_relevance
from stages.release.papers.adlm.adlm import perturbed, priced
from stages.release.papers.adlm.recipe import resolve

if TYPE_CHECKING:
    from airlock.attack.targets import Target

NAME = "ilm"


def plan(params: Params, facts: Facts) -> Plan:
    """The price of a release, from parameters and public facts alone."""
    return priced(NAME, resolve(params, facts, adaptive=False), params, facts)


relevance, make_relevance = no_relevance, makes_nothing


@makes
def make(given: Given) -> Released:
    """Read, perturb, and forget: tensors and details of the release."""
    return perturbed(resolve(given.params, given.facts, adaptive=False), given)


def targets(
    params: Params, facts: Facts, *, factor: float = 1.0, release: dict[str, Any] | None = None
) -> list[Target]:
    """What an attack can go for."""
    from stages.release.papers.adlm.targets import targets_of

    return targets_of(
        resolve(params, facts, adaptive=False), delta=params.release.delta, factor=factor, release=release
    )
