"""Methods for linear models: GraphEditor and CertUnlearn."""
