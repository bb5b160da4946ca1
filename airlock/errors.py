"""Every error a user can meet. Each is one line that names the fix; none quotes a value of a record."""

from __future__ import annotations


class AirlockError(Exception):
    """The root of all errors that are shown to a user as one line."""

    exit_code = 2


class InputError(AirlockError):
    """The question was wrong: a missing file, a bad parameter, an unknown name."""


class ParamsError(InputError):
    """params.yaml (or a `-S` override) is not valid."""


class SchemaError(InputError):
    """A schema is missing, unconfirmed or impossible."""


class RecordError(InputError):
    """A record breaks its schema. Says what, in which column and row; never the value."""

    def __init__(self, problem: str, *, column: str | None = None, row: int | None = None) -> None:
        self.problem, self.column, self.row = problem, column, row
        where = [f"column '{column}'"] if column else []
        where += [f"row {row}"] if row is not None else []
        super().__init__(f"{problem} ({', '.join(where)})" if where else problem)


class KeysError(InputError):
    """A key is missing, damaged or belongs to another project."""


class SealError(InputError):
    """A sealed file cannot be opened: wrong key, or its bytes were changed."""


class RefusedError(AirlockError):
    """The question was fine and the answer is no."""

    exit_code = 1


class BudgetRefused(RefusedError):
    """A release would pass the population's cap, or may not be made at all."""


class BoundaryError(RefusedError):
    """The wall does not hold: a taint, a missing layer, an undeclared output."""


class LedgerError(RefusedError):
    """The ledger is missing, was changed, or cannot be reached."""


class LedgerMoved(LedgerError):
    """The ledger is kept elsewhere now."""


class ReleaseError(RefusedError):
    """A release is not what its manifest or its archive says."""


class BundleError(RefusedError):
    """A bundle is damaged, was changed, or says what does not follow."""


class StageFailed(RefusedError):
    """A confined stage ended with an error; the details are in the owner's log."""


class DiskFull(StageFailed):
    """A stage was ended before it had filled a disk."""
