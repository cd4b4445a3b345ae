"""Files, progress bars and YAML."""
