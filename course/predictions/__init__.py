"""Predictions and votes: forms, gates, the ledger that keeps them, and claims on one's own run."""
