"""Reports: read finished cells from the store and write tables, figures and pages."""
