"""Designs that measure: whole runs, turns, causes, sweeps, starts, profiles, reference campaigns."""
