"""How an optimizer step runs: TRL's GRPOTrainer with a token rule, and what keeps a run safe."""
