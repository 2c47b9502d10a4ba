"""Files, processes and progress: what every other package stands on, and nothing of the subject."""
