"""Killable processes for symbolic comparisons."""
