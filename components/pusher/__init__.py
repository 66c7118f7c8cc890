"""Puts a blessed model where it is served from, whole or not at all; import the submodule you need."""
