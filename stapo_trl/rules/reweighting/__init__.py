"""Rules that give tokens another advantage, under the clipped loss."""
