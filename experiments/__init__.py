"""The paper's tables and studies; never imported by the package."""
