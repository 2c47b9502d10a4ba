"""One file from a study: what it measured, the programs that measured it, and what was concluded from it."""
