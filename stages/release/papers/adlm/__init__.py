"""The paper's mechanism: adlm."""
