"""The paper's mechanism: dp-sgd."""
