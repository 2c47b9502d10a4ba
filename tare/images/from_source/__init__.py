"""What of a tree is compiled on this machine."""
