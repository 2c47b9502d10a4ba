"""From a stack to a tree, to one OCI image, to the form of each runtime."""
