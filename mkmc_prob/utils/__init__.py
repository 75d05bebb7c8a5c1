"""Arguments, files and processes: what every other folder may use."""
