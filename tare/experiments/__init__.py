"""Designs that measure: whole runs with their training steps, causes, sweeps, starts, profiles, reference campaigns."""
