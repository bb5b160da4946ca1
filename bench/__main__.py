"""`make bench`: accuracy, the comparison with DP-SGD, the ablation of relevance, scaling, and the page made
from them.
"""

from __future__ import annotations

import subprocess
import sys

PARTS = (
    "bench.flagship.dpsgd",
    "bench.flagship.accuracy",
    "bench.flagship.relevance",
    "bench.scale.scaling",
    "bench.tables_beside",
    "bench.numbers",
    "bench.tables",
)

if __name__ == "__main__":
    for part in PARTS:
        print(f"== {part}", flush=True)
        subprocess.run([sys.executable, "-m", part], check=True)
