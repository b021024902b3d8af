"""Transport: exact plans, Sinkhorn, bridges and displacement between clouds."""
