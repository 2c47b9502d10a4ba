"""What was varied: settings, stacks, page faults of the allocator, and which matters more."""
