"""What belongs to NVIDIA devices, on the host's side: driver, state and health of devices, readers of profilers."""
