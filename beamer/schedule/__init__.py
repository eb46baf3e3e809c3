"""`beamer schedule`: a search of real training processes under a GPU policy."""
