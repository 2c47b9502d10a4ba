"""Published studies and recorded reference campaigns beside what is measured here."""
