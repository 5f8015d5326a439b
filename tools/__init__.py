"""What authors run by hand: what a launch costs, how often verdicts fall, what toys show."""
