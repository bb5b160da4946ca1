"""The paper's mechanism: optimized-noise."""
