"""Families of tasks, one file each; `benchmarks.zoo.registry` has them all."""
