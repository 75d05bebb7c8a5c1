"""How completion is evaluated: artificial missingness, baselines and scores."""
