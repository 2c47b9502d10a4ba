"""What others published, audited by code and judged against what was measured."""
