"""The moments solver: many fixed probes at once, whitened, and Gauss-Newton."""
