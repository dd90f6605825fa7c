"""`baseline-speed`: where a run's time would go, measured layer by layer."""
