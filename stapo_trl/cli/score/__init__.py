"""`stapo score`: which tokens of saved completions are spurious, without training."""
