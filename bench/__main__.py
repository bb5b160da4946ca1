"""`make bench`: Airlock beside its peers on this machine, in one run, and docs/benchmarks.md made of it.

python -m bench                      half an hour or so: MNIST beside DP-SGD, the held-out tables beside DP-EBM,
                                     diffprivlib, Opacus and scikit-learn, numbers, a million records
python -m bench tables numbers       some parts of it
python -m bench --whole              every cell of the page: hours; tuning and tables go on where they stopped
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

PAGE = ("bench.tables",)
PARTS = {
    "dp-sgd": ("bench.flagship.dpsgd", "measure"),
    "tables": ("bench.tables_beside", "--again"),
    "numbers": ("bench.numbers",),
    "scaling": ("bench.scale.scaling", "1000000"),
}
WHOLE = {
    "dp-sgd": ("bench.flagship.dpsgd",),
    "accuracy": ("bench.flagship.accuracy",),
    "relevance": ("bench.flagship.relevance",),
    "tables": ("bench.tables_beside",),
    "one-run": PARTS["tables"],
    "numbers": PARTS["numbers"],
    "scaling": ("bench.scale.scaling",),
}


def main() -> None:
    """Run the parts in turn, then write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(WHOLE)}; all without any")
    parser.add_argument("--whole", action="store_true", help="every cell instead of one run's")
    asked = parser.parse_args()
    known = WHOLE if asked.whole else PARTS
    if unknown := [name for name in asked.parts if name not in known]:
        parser.error(f"no part '{unknown[0]}'{'' if asked.whole else ' without --whole'}: {', '.join(known)}")
    for name in asked.parts or known:
        start = time.monotonic()
        print(f"== {name}", flush=True)
        subprocess.run([sys.executable, "-m", *known[name]], check=True)
        print(f"== {name}: {(time.monotonic() - start) / 60:.1f} minutes", flush=True)
    subprocess.run([sys.executable, "-m", *PAGE], check=True)


if __name__ == "__main__":
    main()
