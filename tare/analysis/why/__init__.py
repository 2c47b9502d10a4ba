"""Why environments differ: kernels, operators, phases and files, and the reason that most speaks for."""
