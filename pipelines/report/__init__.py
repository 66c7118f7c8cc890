"""One HTML file about one run, made from the files that the run left; import the submodule you need."""
