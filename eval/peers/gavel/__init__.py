"""The simulator of Gavel [Narayanan et al. 2020]: stanford-futuredata/gavel, folder `scheduler`."""
