"""What the experiments share: the settings they start from, and the trained and pruned models that several of them read."""
