"""Looking at tokens: the token log, statistics by quadrant, and the report."""
