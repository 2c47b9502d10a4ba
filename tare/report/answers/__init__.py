"""The answer: what environments cost, by length of job, and what to do."""
