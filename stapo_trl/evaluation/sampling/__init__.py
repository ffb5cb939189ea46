"""Sampling answers, with transformers or vLLM."""
