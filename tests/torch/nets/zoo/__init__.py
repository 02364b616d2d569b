"""The rows of hundred_models.py: models of libraries with small random configurations."""
