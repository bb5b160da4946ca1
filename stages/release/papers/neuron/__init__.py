"""The paper's mechanism: neuron."""
