"""The page of `python -m course gpus`, and what was recorded on an H200."""
