"""Make committed releases again from the sealed records, to compare their bytes: no ledger is opened and
nothing is published.

This is safe to do as often as one likes. The noise of a release comes from a key, its id and the exact sum,
so the same records give the same bytes, and what is made here is thrown away after it was compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from airlock.inside.digests import sha256_path
from airlock.owner.keys import Keyring
from airlock.privacy.plan import Facts
from airlock.run import nights, orders
from airlock.run.desk import open_desk
from airlock.run.request import Request
from airlock.run.stage import make_releases, seal_keys

Same = Callable[[str, str], bool]


def recompute(asked: Request, ids: Mapping[str, str], same: Same) -> dict[str, bool]:
    """Make releases of a release stage once more, in a workspace that holds its sealed records and its
    upstream.

    Args:
        asked: the stage.
        ids: release ids by out, as their manifests have them.
        same: told an out and the SHA-256 of what was made now, says whether these are the released bytes.

    Returns:
        For each out, whether the bytes were found again.
    """
    keyring, (facts, generation) = Keyring.load(asked.project), orders.read_facts(asked.workspace)
    found = dict.fromkeys(ids, False)
    sealed = seal_keys(keyring, facts, generation)
    told = [nights.again(asked.project, asked.project.archive / one) for one in ids.values()]
    night = next((nights.visit(asked.project, keyring, one) for one in told if one), None)
    # Noise comes from the generation that was newest when the release was made, which only its bytes
    # remember.
    for newest in range(keyring.generation, 0, -1):
        then = replace(keyring, masters=keyring.masters[:newest])
        missing = {out: one for out, one in ids.items() if not found[out]}
        noise = {out: then.noise_key(one, scratch=facts.public) for out, one in missing.items()}
        found |= _compare(asked, missing, facts, sealed, noise, same, night) if missing else {}
    return found


def _compare(
    asked: Request,
    ids: Mapping[str, str],
    facts: Facts,
    sealed: Mapping[str, bytes],
    noise: Mapping[str, bytes],
    same: Same,
    night: nights.Visit | None,
) -> dict[str, bool]:
    with open_desk(asked) as desk:
        # A cluster gives the same bits, and the owner's machine is enough for a check.
        local = asked.params.release.model_copy(update={"engine": "local", "address": None})
        here = replace(asked, params=asked.params.model_copy(update={"release": local}))
        make_releases(here, desk, ids, facts, sealed, noise, night=night)
        return {out: same(out, sha256_path(desk.staging / out)) for out in ids}
