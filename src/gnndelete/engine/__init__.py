"""Where the rows of a layer come from."""
