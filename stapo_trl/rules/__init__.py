"""Which tokens a method keeps, and with which advantage: one file a method."""
