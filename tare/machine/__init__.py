"""What this machine is and can do: processor, devices, drivers, profilers."""
