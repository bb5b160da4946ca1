"""Two processes cannot overspend together: eight ask for what fits only three times, and exactly three get
it.
"""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.synchronize import Barrier

import pytest

from airlock.errors import BudgetRefused
from airlock.ledger import Ledger
from tests.support.bookkeeping import gaussian, name, reserve

PROCESSES, FIT = 8, 3
# Three thirds of a budget fit to the last bit; a fourth does not.
EVENT = gaussian(3.0, share=1 / FIT)


def ask(
    url: str, population: str, number: int, start: Barrier, answers: multiprocessing.SimpleQueue[str]
) -> None:
    """One process: wait for the others, ask, tell."""
    try:
        ledger = Ledger.open(url, create=False)
        start.wait()
        answers.put(reserve(ledger, f"{population}/{number}", event=EVENT, population=population).status)
    except BudgetRefused:
        answers.put("refused")
    except BaseException as error:
        answers.put(f"failed: {error}")
        raise


def race(url: str, population: str) -> dict[str, int]:
    """One round among eight processes, over an account of its own; how many got which answer."""
    Ledger.open(url, create=False).set_cap(population, 3, 1e-5, who="owner", why="race")
    context = multiprocessing.get_context("fork")
    start, answers = context.Barrier(PROCESSES), context.SimpleQueue()
    workers = [
        context.Process(target=ask, args=(url, population, number, start, answers))
        for number in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    given = [answers.get() for _ in workers]
    for worker in workers:
        worker.join()
    return {answer: given.count(answer) for answer in sorted(set(given))}


def check_rounds(url: str, rounds: int) -> None:
    ledger = Ledger.open(url, create=True)
    ledger.set_cap("warm", 3, 1e-5, who="owner", why="load the accountant once, before the forks")
    reserve(ledger, "warm", population="warm")
    began = time.perf_counter()
    for number in range(rounds):
        assert race(url, f"round {number}") == {"new": FIT, "refused": PROCESSES - FIT}, f"round {number}"
        assert ledger.spent(f"round {number}").releases == FIT
    assert ledger.verify([ledger.head()]) == []
    print(
        f"{rounds} rounds of {PROCESSES} processes: exactly {FIT} succeeded in each; "
        f"{time.perf_counter() - began:.1f} s"
    )


def test_exactly_three_of_eight_processes_get_what_fits_three_times(url: str) -> None:
    check_rounds(url, rounds=4)


@pytest.mark.stress
def test_exactly_three_of_eight_in_two_hundred_rounds(url: str) -> None:
    check_rounds(url, rounds=200)


def test_processes_with_one_id_pay_once(url: str) -> None:
    Ledger.open(url, create=True).set_cap("p", 3, 1e-5, who="owner", why="race")
    context = multiprocessing.get_context("fork")
    start, answers = context.Barrier(4), context.SimpleQueue()
    workers = [context.Process(target=ask, args=(url, "p", 0, start, answers)) for _ in range(4)]
    for worker in workers:
        worker.start()
    given = sorted(answers.get() for _ in workers)
    for worker in workers:
        worker.join()
    assert given == ["new", "taken-over", "taken-over", "taken-over"]
    ledger = Ledger.open(url, create=False)
    assert ledger.spent("p").releases == 1
    assert ledger.release(name("p/0")).taken_over == 3
