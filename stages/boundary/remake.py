"""Make committed releases again from the sealed records, to compare their bytes: no ledger is opened and nothing is published.

This is safe to do as often as one likes. The noise of a release comes from a key, its id and the exact sum, so the same records
give the same bytes, and what is made here is thrown away after it was compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from stages.boundary import broker
from stages.boundary.broker import Order
from stages.boundary.canonical import sha256_path
from stages.boundary.keys import Keyring
from stages.boundary.runner import Run, seal_keys

Same = Callable[[str, str], bool]


class Remake(Run):
    """One release stage, run again behind the wall in a workspace that holds its sealed records and its upstream."""

    def again(self, same: Same) -> dict[str, bool]:
        """Make every release of the stage once more.

        Args:
            same: told an out and the SHA-256 of what was made now, says whether these are the released bytes.

        Returns:
            For each out, whether the bytes were found again.
        """
        keyring, (facts, generation) = Keyring.load(self.project), broker.read_facts(self.workspace)
        # A cluster gives the same bits, and the owner's machine is enough for a check.
        local = self.params.release.model_copy(update={"engine": "local", "address": None})
        self.params = self.params.model_copy(update={"release": local})
        orders = broker.price(self.stage, self.graph, params=self.params, facts=facts, workspace=self.workspace)
        pending = [order for order in orders if order.pending]
        found = {order.out: False for order in pending}
        sealed = seal_keys(keyring, facts, generation)
        # Noise comes from the generation that was newest when the release was made, which only its bytes remember.
        for newest in range(keyring.generation, 0, -1):
            then = replace(keyring, masters=keyring.masters[:newest])
            missing = [order for order in pending if not found[order.out]]
            noise = {order.out: then.noise_key(order.release_id, scratch=facts.public) for order in missing}
            found |= self._compare(missing, sealed, noise, same) if missing else {}
        return found

    def _compare(self, orders: list[Order], sealed: Mapping[str, bytes], noise: Mapping[str, bytes], same: Same) -> dict[str, bool]:
        facts, _ = broker.read_facts(self.workspace)
        with self._folders() as (staging, scratch):
            self._make(orders, facts, sealed, noise, staging, scratch)
            return {order.out: same(order.out, sha256_path(staging / order.out)) for order in orders}
