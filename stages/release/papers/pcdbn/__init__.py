"""The paper's mechanism: pcdbn."""
