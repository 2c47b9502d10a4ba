"""Intervals, verdicts and sample sizes: numbers in, numbers out."""
