"""Published studies beside what is measured here."""
