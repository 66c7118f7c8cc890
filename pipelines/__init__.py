"""Which step runs after which: configuration, command line, the local runner and test support."""
