"""Results site: static pages of analyses, with one table for each choice of runs that may be ranked together."""
