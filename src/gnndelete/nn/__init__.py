"""The model side: how a model is run, where its graph layers are, and how operators are attached."""
