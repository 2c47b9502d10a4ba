"""One run anywhere: its conditions, its channel, its record."""
