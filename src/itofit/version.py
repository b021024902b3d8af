"""The version, for what is written into files."""

VERSION = "0.1.0"
