"""Rules for a loss without PPO's clip: where a token stops to count is up to them."""
