"""Several processes that train together: how gradients travel between them."""
