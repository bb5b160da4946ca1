"""What is read and perturbed, by mechanism."""
