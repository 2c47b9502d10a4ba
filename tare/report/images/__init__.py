"""What an image costs."""
