"""`beamer run`: any command as a trial of a study, with its processes found and its end reported."""
