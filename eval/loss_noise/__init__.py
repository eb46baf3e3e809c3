"""The study of how noisy losses are: three small models that train, each on fresh samples and on finite data."""
