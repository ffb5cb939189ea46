"""Killable processes for symbolic comparison."""
