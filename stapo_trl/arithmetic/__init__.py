"""The embedded task: sums and products that a model of 0.1 M parameters learns on a CPU."""
