"""What others published, audited by code and judged beside what was measured."""
