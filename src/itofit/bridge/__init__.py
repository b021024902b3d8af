"""The bridge solver: couple, pin, regress (docs/theory/bridge.md)."""
