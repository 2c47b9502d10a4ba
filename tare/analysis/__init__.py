"""From records to tables, verdicts, causes, rooflines and costs; never starts anything."""
