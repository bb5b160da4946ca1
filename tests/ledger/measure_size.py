"""What a fresh process spends on a ledger, in seconds of processor time: run by test_size.py."""

import json
import sys
import time
from functools import partial

from airlock.ledger import Ledger
from airlock.ledger.ledger import Reservation
from airlock.ledger.store import Store
from tests.support.bookkeeping import reserve


def seconds(work: object) -> float:
    began = time.process_time()
    work()  # type: ignore[operator]
    return time.process_time() - began


def main(url: str) -> dict[str, float]:
    ledger, held, rows = Ledger.open(url, create=False), [0.0], Store.rows

    ledger.snapshot()
    found = {"show": time.process_time()}

    def fetch(self: Store, connection: object, since: int = 0) -> object:
        began = time.process_time()
        answer = rows(self, connection, since)  # type: ignore[arg-type]
        if since:
            held[0] += time.process_time() - began
        return answer

    Store.rows = fetch  # type: ignore[method-assign,assignment]

    def once(number: int) -> Reservation:
        return reserve(ledger, f"again {number}", 0.01, population="clinic1")

    found["first"] = seconds(
        lambda: reserve(Ledger.open(url, create=False), "first", 0.01, population="clinic1")
    )
    found["again"] = min(seconds(partial(once, number)) for number in range(3))
    found["under lock"] = held[0] / 4
    return found


print(json.dumps(main(sys.argv[1])))
