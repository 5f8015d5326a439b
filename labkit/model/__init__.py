"""Predict: cost models, topologies and pipeline schedules. No torch in here."""
