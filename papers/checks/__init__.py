"""What the findings of published studies are computed by, one module for each kind of data."""
