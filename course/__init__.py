"""Learn: predictions, checks of exercises, and the notebooks as files."""
