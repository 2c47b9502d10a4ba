"""How long studies and campaigns take, and what a precision or a number of minutes will give."""
