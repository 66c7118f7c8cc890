"""Lockstep beside the stock TFX components, on one machine, in one command: ``make bench``."""
