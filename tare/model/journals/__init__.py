"""What was measured, as it is read back whole: units, sealed campaigns, the ledger, reference campaigns."""
