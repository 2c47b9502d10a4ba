"""Designs that measure: whole runs with their steps, causes, sweeps, starts, profiles, reference campaigns."""
