"""What measured: the machine, its devices, conditions, material, and how near it came to its roofs."""
