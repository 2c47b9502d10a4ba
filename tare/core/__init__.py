"""Files, processes and progress: what every other package is built on, and nothing of the subject."""
