"""A schema that was reviewed, in place of one that is inferred in each run."""
