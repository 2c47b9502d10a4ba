"""How it was measured: designs, the instrument, tries, and whether all computed the same."""
