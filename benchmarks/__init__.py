"""Benchmarks: interleaved rounds in one process, medians as ratios to a bare process of the same run."""
