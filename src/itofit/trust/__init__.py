"""How far to believe a fit: error bars, goodness of fit, and what the data cannot determine."""
