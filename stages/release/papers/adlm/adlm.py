"""`adlm`: the Adaptive Laplace Mechanism (Phan, Wu, Hu and Dou 2018, arXiv 1709.05750v2, Algorithm 1), as
published, once for all.

Released: noisy relevances (Eq. 12), every record's inputs (lines 9-14), a bias (line 14) and every record's
loss coefficients (lines 16-19). The paper can be read in several ways, each a different mechanism: they are
options, and the presets are

    paper-literal   Delta_h0 = 2 d |h0| as in Lemma 3, noise for every record, relevance through a network trained on
                    the raw records
    authors-code    Delta_h0 of one pooled map, one noise vector for a whole batch, relevance clamped and to the
                    fourth power; for images the program's own network, and its label noise: one matrix beside
                    labels as they are. For grey ones pixels in [-1, 1], and relevance floored after its noise. For
                    colour images it is another program: one noise image for all records, after they were distorted
                    (stages/release/papers/adlm/colour.py)
    sound           the same algorithm with the sensitivities that Theorems A1 and A2 prove, relevance through a
                    public network

docs/errata/adlm.md tells which of the paper's claims hold. Sensitivities (L1): inputs d * range, labels 1
(zero-out) or 2 (replace-one), mean relevance of m records d / m.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airlock.params import Params
from airlock.privacy.guarantees import Guarantee
from airlock.privacy.plan import Facts, Plan
from stages.mechanisms import Given, Released, makes
from stages.release.noisy_sums import check_scale
from stages.release.papers import guarantees
from stages.release.papers.adlm.recipe import RAW_RELEVANCE, Recipe, laplaces, resolve

if TYPE_CHECKING:
    from airlock.attack.targets import Target

NAME, VERSION = "adlm", 1
AVERAGED = "averaged-relevance"
ARGUMENT = "docs/proofs/adlm.md#record-release"


def plan(params: Params, facts: Facts) -> Plan:
    """The price of a release, from parameters and public facts alone."""
    return priced(NAME, resolve(params, facts), params, facts)


def _check_scale(recipe: Recipe, facts: Facts) -> None:
    """Refuse noise of a private release that the grid does not hold, before anything is charged."""
    from stages.release.papers.adlm.perturbation import largest_noise

    if not recipe.flaw:
        check_scale(largest_noise(recipe, facts))


def split(recipe: Recipe, params: Params) -> bool:
    """Whether relevance is released by the stage of that name, or here."""
    return recipe.adaptive and params.relevance.mode == "auto"


def priced(name: str, recipe: Recipe, params: Params, facts: Facts) -> Plan:
    """Claimed (by the paper) and proven (Theorems A1-A3) guarantee of one reading."""
    _check_scale(recipe, facts)
    apart = split(recipe, params)
    released = recipe.adaptive and recipe.options.network == "released"
    # Ids from before there was a choice stay what they were.
    unsaid = (set() if recipe.program else {"label_noise"}) | (set() if recipe.signed else {"pixels"})
    return Plan(
        name,
        VERSION,
        {
            "epsilon": params.release.epsilon,
            "delta": params.release.delta,
            **recipe.options.model_dump(mode="json", exclude=unsaid),
            **({"relevance": "auto"} if apart else {}),
        },
        passes=1 + (relevance_passes(recipe) if recipe.adaptive and not apart else 0),
        proven=_proven(recipe, params, facts),
        claimed=_claimed(recipe, params),
        interactive=released and not apart,
        public_only=bool(recipe.flaw),
    )


def relevance_passes(recipe: Recipe) -> int:
    """Reads for relevance: one for the mean, and what its network needs."""
    reads = {"raw": recipe.options.pretraining_epochs, "released": network_steps(recipe)}
    return 1 + reads.get(str(recipe.options.network), 0)


def relevance(params: Params, facts: Facts) -> Plan | None:
    """The price of the mean relevance; inputs and labels are not in its id."""
    recipe = resolve(params, facts)
    if not split(recipe, params):
        return None
    _check_scale(recipe, facts)
    delta, options = params.release.delta, recipe.options
    shaping = ("network", "allocation", "stabiliser", "pretraining_epochs")
    parameters = {
        "scale": recipe.relevance_scale,
        "records": recipe.counted,
        "delta": delta,
        **{name: getattr(options, name) for name in shaping},
        # Ids from before there was a choice stay what they were.
        **({"pixels": "signed"} if recipe.signed else {}),
    }
    event = None if recipe.relevance_flaw else relevance_event(recipe, params, facts)
    if options.network == "released":
        parameters["network_event"] = None if event is None else event["events"][1]
    said: dict[str, Any] = {
        "sensitivity": f"L1: mean relevance {recipe.features / recipe.counted:g}",
        "argument": RAW_RELEVANCE,
        "arithmetic": recipe.arithmetic,
    }
    proven = (
        guarantees.unproven(params.release, reason=recipe.relevance_flaw, **said)
        if event is None
        else guarantees.proven(params.release, event, **said)
    )
    return Plan(
        AVERAGED,
        VERSION,
        parameters,
        passes=relevance_passes(recipe),
        proven=proven,
        interactive=options.network == "released",
        public_only=event is None,
    )


def _claimed(recipe: Recipe, params: Params) -> Guarantee | None:
    if recipe.options.sensitivity == "tight":
        return None
    return guarantees.claimed(
        params.release, neighbours="replace-one", argument="Phan et al. 2018, Theorem 1"
    )


def _proven(recipe: Recipe, params: Params, facts: Facts) -> Guarantee:
    if recipe.flaw:
        return guarantees.unproven(
            params.release, argument=recipe.why, reason=recipe.flaw, arithmetic=recipe.arithmetic
        )
    event = event_of(recipe, params, facts)
    sensitivity = f"L1: inputs {recipe.features * recipe.span:g}, labels {recipe.moved_labels}" + (
        f", mean relevance {recipe.features / recipe.counted:g}" if recipe.adaptive else ""
    )
    return guarantees.proven(
        params.release, event, sensitivity=sensitivity, argument=ARGUMENT, arithmetic=recipe.arithmetic
    )


def event_of(recipe: Recipe, params: Params, facts: Facts) -> dict[str, Any]:
    """What the ledger is charged.

    AdLM's shares are known only after a release, and every way to share has the same pure epsilon: it is
    charged as the worst mechanism of that epsilon, randomised response (discrete Laplace of sensitivity 1).
    ILM's even shares are charged one by one.
    """
    if not recipe.adaptive:
        return laplaces(
            (recipe.features, recipe.input_scale / recipe.span), (recipe.moved_labels, recipe.label_scale)
        )
    total = recipe.input_epsilon + recipe.label_epsilon
    if split(recipe, params):
        return pure_event(total)
    pure = pure_event(total + recipe.relevance_epsilon)
    return _with_network(pure, recipe, params, facts)


def relevance_event(recipe: Recipe, params: Params, facts: Facts) -> dict[str, Any]:
    """What the ledger is charged for the mean relevance, and for the network that it goes through."""
    return _with_network(pure_event(recipe.relevance_epsilon), recipe, params, facts)


def pure_event(epsilon: float) -> dict[str, Any]:
    """The worst mechanism of a pure epsilon."""
    return {"kind": "discrete-laplace", "noise_parameter": epsilon, "sensitivity": 1}


def _with_network(pure: dict[str, Any], recipe: Recipe, params: Params, facts: Facts) -> dict[str, Any]:
    if recipe.options.network != "released":
        return pure
    from stages.release.papers.adlm import pretraining

    return {
        "kind": "composed",
        "events": [pure, pretraining.event(recipe.options.pretraining_epochs, params, facts)],
    }


def network_steps(recipe: Recipe) -> int:
    """Reads of a network trained by DP-SGD: its steps."""
    from stages.release.papers.adlm import pretraining

    return recipe.options.pretraining_epochs * pretraining.STEPS_AN_EPOCH


@makes
def make(given: Given) -> Released:
    """Read, perturb, and forget: tensors and details of the release."""
    return perturbed(resolve(given.params, given.facts), given)


def perturbed(recipe: Recipe, given: Given) -> Released:
    """The release of one reading."""
    from stages.release.papers.adlm.perturbation import perturb

    earlier = given.earlier()[0]["relevance"] if split(recipe, given.params) else None
    named: dict[str, Any] = {"key": given.key, "release_id": given.release_id}
    return perturb(recipe, given.params, given.facts, given.reader, relevance=earlier, **named)


@makes
def make_relevance(given: Given) -> Released:
    """Average the relevances of records, and release the noisy sum."""
    from stages.release.papers.adlm.perturbation import average

    recipe = resolve(given.params, given.facts)
    named: dict[str, Any] = {"key": given.key, "release_id": given.release_id}
    total = average(recipe, given.params, given.facts, given.reader, **named)
    return {"relevance": total}, {"n": given.facts.n, "epsilon": recipe.relevance_epsilon}


def targets(
    params: Params, facts: Facts, *, factor: float = 1.0, release: dict[str, Any] | None = None
) -> list[Target]:
    """What an attack can go for."""
    from stages.release.papers.adlm.targets import targets_of

    return targets_of(resolve(params, facts), delta=params.release.delta, factor=factor, release=release)
