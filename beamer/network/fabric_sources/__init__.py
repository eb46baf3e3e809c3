"""Networks from what a site already has: each source becomes rows of two tables, and the rows become a `Fabric`."""
