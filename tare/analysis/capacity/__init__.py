"""What the machine can do: ceilings, roofs above workloads, the network, the input alone."""
