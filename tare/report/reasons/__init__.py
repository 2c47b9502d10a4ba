"""Why environments differ."""
