"""The typed vocabulary: environments, workloads, studies, stacks, arms, records and tables."""
