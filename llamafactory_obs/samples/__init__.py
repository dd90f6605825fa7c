"""Which rows of which data set a batch is made of: their content, their place in the training set, their source."""
