"""`stapo report`: what a run learned and which tokens it silenced, in one HTML file and as figures for a paper."""
