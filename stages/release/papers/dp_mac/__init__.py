"""The paper's mechanism: dp-mac."""
