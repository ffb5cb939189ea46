"""Whether a final answer equals the gold, in bounded time."""
