"""Lower bounds on epsilon, by experiment."""
